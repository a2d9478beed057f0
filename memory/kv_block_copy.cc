#include "memory/kv_block_copy.h"

#include "base/check.h"

namespace bulkhead {
namespace {

// copy(where the block begins in the arena, offset in the host's bytes, how many) for each layer.
template <typename Copy>
void ForEachLayer(const KvArena& arena, KvLayers layers, BlockId block, const Copy& copy) {
  BH_CHECK(layers.begin >= 0 && layers.end <= arena.num_layers());
  BH_CHECK(block > 0 && block <= arena.num_blocks);
  int64_t at = 0;
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    const KvLayerView view = arena.Layer(layer);
    const int64_t bytes = view.geometry.LayerBlockBytes();
    if (bytes > 0) copy(view.Keys(block, 0), at, bytes);  // else a rank without heads
    at += bytes;
  }
}

}  // namespace

int64_t KvBlockBytes(const KvArena& arena, KvLayers layers) {
  int64_t bytes = 0;
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    bytes += arena.Layer(layer).geometry.LayerBlockBytes();
  }
  return bytes;
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
