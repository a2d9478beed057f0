#include "memory/kv_block_copy.h"

#include "base/check.h"

namespace bulkhead {
namespace {

std::byte* At(const KvArena& arena, BlockId block) {
  BH_CHECK(block > 0 && block <= arena.num_blocks);
  return arena.base + block * arena.block_bytes;
}

}  // namespace

void ExportKvBlock(const KvArena& arena, BlockId block, Device& device, std::byte* bytes) {
  if (arena.block_bytes == 0) return;  // a rank without heads
  device.CopyToHost(At(arena, block), bytes, arena.block_bytes);
}

void ImportKvBlock(const KvArena& arena, BlockId block, Device& device, const std::byte* bytes) {
  if (arena.block_bytes == 0) return;
  device.CopyFromHost(bytes, At(arena, block), arena.block_bytes);
}

}  // namespace bulkhead
