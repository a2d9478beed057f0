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

KvBlockPool::~KvBlockPool() {
  BH_CHECK(num_free() == num_blocks_ && num_reserved_ == 0 && num_reserved_out_ == 0);
}

BlockId KvBlockPool::TakeFree() {
  if (free_.empty()) {
    free_.push_back(cache_->EvictOldest());
    if (snapshots_ != nullptr) snapshots_->Drop(free_.back());
    ++num_evictions_;
  }
  const BlockId block = free_.back();
  free_.pop_back();
  out_[block] = true;
  return block;
}

// True if no list holds it any more.
bool KvBlockPool::Release(BlockId block) {
  BH_CHECK(block > 0 && block <= num_blocks_ && out_[block]);
  const bool cached = Cached(block);
  if (cached && !cache_->Release(block)) return false;
  out_[block] = false;
  if (!cached) free_.push_back(block);
  return true;
}

bool KvBlockPool::Grow(std::vector<BlockId>& blocks, int64_t count) {
  BH_CHECK(count >= 0);
  if (count > num_available()) return false;
  for (int64_t i = 0; i < count; ++i) blocks.push_back(TakeFree());
  return true;
}

void KvBlockPool::Return(std::vector<BlockId>& blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) Release(*block);
  blocks.clear();
}

bool KvBlockPool::Reserve(int64_t count) {
  BH_CHECK(count >= 0);
  if (count > num_available()) return false;
  num_reserved_ += count;
  return true;
}

void KvBlockPool::Unreserve(int64_t count) {
  num_reserved_ -= count;
  BH_CHECK(count >= 0 && num_reserved_ >= num_reserved_out_);
}

BlockId KvBlockPool::TakeReserved() {
  BH_CHECK(num_reserved_out_ < num_reserved_ && num_free() > 0);
  ++num_reserved_out_;
  return TakeFree();
}

void KvBlockPool::ReturnReserved(BlockId block) {
  if (Release(block)) --num_reserved_out_;
}

std::vector<BlockId> KvBlockPool::FindWindow(const SequenceKey& key, const CachedPrefix& prefix,
                                             int group, int64_t first, int64_t count) const {
  std::vector<BlockId> blocks;
  for (int64_t i = count - 1; i >= first; --i) {
    const BlockKey full = key.Block(i, cache_->block_tokens(), 0);
    const BlockId block = cache_->Find(full.InGroup(group, prefix.blocks[i]));
    if (block == 0) break;
    blocks.push_back(block);
  }
  std::reverse(blocks.begin(), blocks.end());
  return blocks;
}

void KvBlockPool::TakeCached(BlockId block) {
  cache_->Acquire(block);
  if (!out_[block]) ++num_reserved_out_;
  out_[block] = true;
  BH_CHECK(num_reserved_out_ <= num_reserved_);
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
  if (key.group > 0) {
    ReturnReserved(block);
    TakeCached(equal);
    return equal;
  }
  cache_->Acquire(equal);
  out_[equal] = true;
  Release(block);
  return equal;
}

int KvBlockPool::NumHolders(BlockId block) const {
  return Cached(block) ? cache_->references(block) : out_[block] ? 1 : 0;
}

}  // namespace bulkhead
