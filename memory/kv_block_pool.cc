#include "memory/kv_block_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace bulkhead {

KvBlockPool::KvBlockPool(int64_t num_blocks, std::unique_ptr<PrefixCache> cache,
                         std::unique_ptr<SnapshotPool> snapshots)
    : num_blocks_(num_blocks),
      cache_(std::move(cache)),
      snapshots_(std::move(snapshots)),
      out_(num_blocks + 1, false) {
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
    if (free_.empty()) {
      free_.push_back(cache_->EvictOldest());
      if (snapshots_ != nullptr) snapshots_->Drop(free_.back());
      ++num_evictions_;
    }
    blocks.push_back(free_.back());
    out_[free_.back()] = true;
    free_.pop_back();
  }
  return true;
}

void KvBlockPool::Return(std::vector<BlockId>& blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    BH_CHECK(*block > 0 && *block <= num_blocks_ && out_[*block]);
    if (Cached(*block)) {
      if (cache_->Release(*block)) out_[*block] = false;
      continue;
    }
    out_[*block] = false;
    free_.push_back(*block);
  }
  blocks.clear();
}

CachedPrefix KvBlockPool::FindPrefix(const SequenceKey& key) const {
  CachedPrefix prefix;
  UpdatePrefix(key, prefix);
  return prefix;
}

void KvBlockPool::UpdatePrefix(const SequenceKey& key, CachedPrefix& prefix) const {
  if (cache_ == nullptr) return;
  if (prefix.num_evictions != num_evictions_) prefix.blocks.clear();
  prefix.num_evictions = num_evictions_;
  std::vector<BlockId>& blocks = prefix.blocks;
  const int block_tokens = cache_->block_tokens();
  const auto full = static_cast<int64_t>(key.tokens.size()) / block_tokens;
  for (auto i = static_cast<int64_t>(blocks.size()); i < full; ++i) {
    const BlockId parent = blocks.empty() ? 0 : blocks.back();
    const BlockId block = cache_->Find(key.Block(i, block_tokens, parent));
    if (block == 0) break;
    blocks.push_back(block);
  }
  prefix.num_idle = NumIdleOf(blocks);
}

int64_t KvBlockPool::NumIdleOf(const std::vector<BlockId>& blocks) const {
  return std::count_if(blocks.begin(), blocks.end(),
                       [this](BlockId block) { return !out_[block]; });
}

CachedPrefix KvBlockPool::FirstBlocks(const CachedPrefix& prefix, int64_t count) const {
  CachedPrefix first = prefix;
  first.blocks.resize(count);
  first.num_idle = NumIdleOf(first.blocks);
  return first;
}

void KvBlockPool::TakePrefix(const CachedPrefix& prefix, std::vector<BlockId>& blocks) {
  for (const BlockId block : prefix.blocks) {
    cache_->Acquire(block);
    out_[block] = true;
    blocks.push_back(block);
  }
}

BlockId KvBlockPool::CacheBlock(const BlockKey& key, BlockId block) {
  BH_CHECK(cache_ != nullptr && out_[block] && !cache_->Contains(block));
  BH_CHECK(key.parent == 0 || out_[key.parent]);
  const BlockId equal = cache_->Find(key);
  if (equal == 0) {
    cache_->Insert(key, block);
    return block;
  }
  cache_->Acquire(equal);
  out_[equal] = true;
  out_[block] = false;
  free_.push_back(block);
  return equal;
}

int KvBlockPool::NumHolders(BlockId block) const {
  return Cached(block) ? cache_->references(block) : out_[block] ? 1 : 0;
}

}  // namespace bulkhead
