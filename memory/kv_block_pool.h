// KvBlockPool: the free list of the KV cache. Accounting only: the pool on rank 0 covers all ranks,
// whose arenas have equal blocks. Not thread-safe: owned by the coordinator.
//
// With a PrefixCache, full blocks stay cached after their last holder releases them: they are idle,
// count as free, and are evicted, least recently used first, when no other block is free.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "memory/prefix_cache.h"
#include "memory/snapshot_pool.h"

namespace bulkhead {

// Cached blocks of a sequence's prefix; valid until the pool changes.
struct CachedPrefix {
  std::vector<BlockId> blocks;
  int64_t num_idle = 0;        // idle ones among them, which may be evicted until taken
  uint64_t num_evictions = 0;  // the pool's counter when this was found
};

class KvBlockPool {
 public:
  // Blocks 1..num_blocks; block 0 is for padding and never allocated. `cache` must cover as many
  // blocks; null disables prefix caching.
  // `snapshots`: of a model with states, whose prefixes can be taken up to one of them.
  explicit KvBlockPool(int64_t num_blocks, std::unique_ptr<PrefixCache> cache = nullptr,
                       std::unique_ptr<SnapshotPool> snapshots = nullptr);
  // All lists must have been returned: a block still held is a leak, and a bug.
  ~KvBlockPool();

  // Appends `count` blocks to `blocks`: all or none. Running out is expected.
  [[nodiscard]] bool Grow(std::vector<BlockId>& blocks, int64_t count);
  // Releases all of `blocks`, last first, and clears the list. Releasing a free block is a bug.
  void Return(std::vector<BlockId>& blocks);

  // The longest cached run of full blocks at the start of the sequence.
  CachedPrefix FindPrefix(const SequenceKey& key) const;
  // Updates a prefix of the same sequence. If nothing was evicted since, only the blocks after it
  // are looked up.
  void UpdatePrefix(const SequenceKey& key, CachedPrefix& prefix) const;
  // Its first `count` blocks.
  CachedPrefix FirstBlocks(const CachedPrefix& prefix, int64_t count) const;
  // Appends the blocks of the prefix, which may be shared: they are never written again.
  void TakePrefix(const CachedPrefix& prefix, std::vector<BlockId>& blocks);
  // Caches the full, computed `block`, whose only holder also holds `key.parent`. Returns the block
  // to hold from now on: itself, or an equal cached one; then `block` is freed.
  BlockId CacheBlock(const BlockKey& key, BlockId block);

  SnapshotPool* snapshots() const { return snapshots_.get(); }
  bool caches() const { return cache_ != nullptr; }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()) + num_idle(); }
  int64_t num_idle() const { return cache_ == nullptr ? 0 : cache_->num_idle(); }
  int64_t num_blocks() const { return num_blocks_; }

  // For tests: number of lists that hold a block.
  int NumHolders(BlockId block) const;
  const PrefixCache* cache() const { return cache_.get(); }

 private:
  int64_t NumIdleOf(const std::vector<BlockId>& blocks) const;
  bool Cached(BlockId block) const { return cache_ != nullptr && cache_->Contains(block); }

  int64_t num_blocks_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<SnapshotPool> snapshots_;
  std::vector<BlockId> free_;  // a stack: recently returned blocks are still in the CPU caches
  std::vector<bool> out_;      // [block] held by some list
  uint64_t num_evictions_ = 0;
};

}  // namespace bulkhead
