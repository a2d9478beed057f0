#include "memory/kv_block_pool.h"

#include "memory/check.h"

namespace bulkhead {

KvBlockPool::KvBlockPool(int64_t num_blocks)
    : num_blocks_(num_blocks), out_(num_blocks + 1, false) {
  BH_CHECK(num_blocks >= 0 && num_blocks < INT32_MAX);
  free_.reserve(num_blocks);
  for (int64_t block = num_blocks; block >= 1; --block)
    free_.push_back(static_cast<BlockId>(block));
}

KvBlockPool::~KvBlockPool() { BH_CHECK(num_free() == num_blocks_); }

bool KvBlockPool::Grow(std::vector<BlockId>& blocks, int64_t count) {
  BH_CHECK(count >= 0);
  if (count > num_free()) return false;
  for (int64_t i = 0; i < count; ++i) {
    blocks.push_back(free_.back());
    out_[free_.back()] = true;
    free_.pop_back();
  }
  return true;
}

void KvBlockPool::Return(std::vector<BlockId>& blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    BH_CHECK(*block > 0 && *block <= num_blocks_ && out_[*block]);
    out_[*block] = false;
    free_.push_back(*block);
  }
  blocks.clear();
}

}  // namespace bulkhead
