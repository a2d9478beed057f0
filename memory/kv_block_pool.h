// KvBlockPool: the free list of the KV cache. Accounting only: the pool on rank 0 covers all ranks,
// whose arenas have equal blocks. Not thread-safe: owned by the coordinator.
//
// With a PrefixCache, full blocks stay cached after their last holder releases them: they are idle,
// count as free, and are evicted, least recently used first, when no other block is free.
//
// In KV groups with a window (memory/limits.h) a sequence holds blocks for as long as the window
// shows them: it reserves as many as it can hold at once, and takes and returns them one by one.
// Sequences may hold the same block, so that fewer are held than are reserved; the difference is
// not available to others.
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
  int64_t num_idle = 0;  // the idle ones among them, which may be evicted until taken
  // [groups with a window] the last blocks, those that the windows after `blocks` cover.
  std::vector<std::vector<BlockId>> windows = {};
  uint64_t num_evictions = 0;  // the pool's counter when this was found
};

class KvBlockPool {
 public:
  // Blocks 1..num_blocks; block 0 is for padding and never allocated. `cache` must cover as many
  // blocks; null disables prefix caching.
  // `snapshots`: for a model with states, whose prefixes end at a block with a snapshot.
  explicit KvBlockPool(int64_t num_blocks, std::unique_ptr<PrefixCache> cache = nullptr,
                       std::unique_ptr<SnapshotPool> snapshots = nullptr);
  // All lists must have been returned: a block still held is a leak, and a bug.
  ~KvBlockPool();

  // Appends `count` blocks to `blocks`: all or none. Running out is expected.
  [[nodiscard]] bool Grow(std::vector<BlockId>& blocks, int64_t count);
  // Releases all of `blocks`, last first, and clears the list. Releasing a free block is a bug.
  void Return(std::vector<BlockId>& blocks);

  // The longest cached run of full blocks at the start of the sequence. `prefix`: what an earlier
  // call found, or none. If nothing was evicted since, only the blocks after it are looked up.
  void UpdatePrefix(const SequenceKey& key, CachedPrefix& prefix) const;
  // The first `count` blocks of `prefix`.
  CachedPrefix FirstBlocks(const CachedPrefix& prefix, int64_t count) const;
  // Appends the blocks of the prefix, which may be shared: they are never written again.
  void TakePrefix(const CachedPrefix& prefix, std::vector<BlockId>& blocks);
  // Caches the full, computed `block`, whose only holder also holds `key.parent`. Returns the block
  // to hold from now on: itself, or an equal cached one; then `block` is freed.
  BlockId CacheBlock(const BlockKey& key, BlockId block);

  // Marks a cached block (PrefixCache::drafted).
  void SetDrafted(BlockId block) { cache_->SetDrafted(block); }

  // Groups with a window. Reserves all or none.
  [[nodiscard]] bool Reserve(int64_t count);
  void Unreserve(int64_t count);
  // Takes a reserved block.
  BlockId TakeReserved();
  // Cached blocks of `group` for blocks [first, count) of the prefix: the longest suffix of these
  // that is cached.
  std::vector<BlockId> FindWindow(const SequenceKey& key, const CachedPrefix& prefix, int group,
                                  int64_t first, int64_t count) const;
  // Takes one of CachedPrefix::windows, using up a reserved block.
  void TakeCached(BlockId block);
  // Releases a taken block; its reservation stays.
  void ReturnReserved(BlockId block);

  SnapshotPool* snapshots() const { return snapshots_.get(); }
  bool caches() const { return cache_ != nullptr; }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()) + num_idle(); }
  // For Grow and Reserve.
  int64_t num_available() const { return num_free() - (num_reserved_ - num_reserved_out_); }
  int64_t num_reserved() const { return num_reserved_; }
  int64_t num_idle() const { return cache_ == nullptr ? 0 : cache_->num_idle(); }
  int64_t num_blocks() const { return num_blocks_; }

  // For tests: number of lists that hold a block.
  int NumHolders(BlockId block) const;
  const PrefixCache* cache() const { return cache_.get(); }

 private:
  int64_t NumIdleOf(const std::vector<BlockId>& blocks) const;
  BlockId TakeFree();
  bool Release(BlockId block);
  bool Cached(BlockId block) const { return cache_ != nullptr && cache_->Contains(block); }

  int64_t num_blocks_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<SnapshotPool> snapshots_;
  std::vector<BlockId> free_;  // a stack: recently returned blocks are still in the CPU caches
  std::vector<bool> out_;      // [block] held by some list
  uint64_t num_evictions_ = 0;
  int64_t num_reserved_ = 0;
  int64_t num_reserved_out_ = 0;  // held blocks of groups with a window
};

}  // namespace bulkhead
