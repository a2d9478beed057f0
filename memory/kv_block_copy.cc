#include "memory/kv_block_copy.h"

#include "base/check.h"

namespace bulkhead {
namespace {

// copy(where the block begins in the arena, offset in the host's bytes, how many) for each layer.
template <typename Copy>
void ForEachLayer(const KvArena& arena, KvLayers layers, BlockId block, const Copy& copy) {
  BH_CHECK(layers.begin >= 0 && layers.end <= arena.geometry.num_layers);
  BH_CHECK(block > 0 && block <= arena.num_blocks);
  const int64_t bytes = arena.geometry.LayerBlockBytes();
  if (bytes == 0) return;  // a rank without heads
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    copy(arena.Layer(layer).Keys(block, 0), (layer - layers.begin) * bytes, bytes);
  }
}

}  // namespace

int64_t KvBlockBytes(const KvGeometry& geometry, KvLayers layers) {
  return (layers.end - layers.begin) * geometry.LayerBlockBytes();
}

void ExportKvBlock(const KvArena& arena, KvLayers layers, BlockId block, Device& device,
                   std::byte* bytes) {
  ForEachLayer(arena, layers, block, [&](const std::byte* from, int64_t at, int64_t count) {
    device.CopyToHost(from, bytes + at, count);
  });
}

void ImportKvBlock(const KvArena& arena, KvLayers layers, BlockId block, Device& device,
                   const std::byte* bytes) {
  ForEachLayer(arena, layers, block, [&](std::byte* to, int64_t at, int64_t count) {
    device.CopyFromHost(bytes + at, to, count);
  });
}

}  // namespace bulkhead
