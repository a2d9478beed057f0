// KvBlockPool: which blocks of the KV cache are free. Accounting only: one pool on rank 0 speaks
// for the equal arenas of all ranks. Not thread-safe: the coordinator owns it.
//
// With a PrefixCache full blocks outlive the lists that held them: they are idle, count as free,
// and are given away, oldest first, when no other block is left.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "memory/block_id.h"
#include "memory/prefix_cache.h"

namespace bulkhead {

// Cached blocks that hold the beginning of a sequence; good until the pool changes.
struct CachedPrefix {
  std::vector<BlockId> blocks;
  int64_t num_idle = 0;        // of them: free as long as nobody takes them
  uint64_t num_evictions = 0;  // the pool's, when it was found
};

class KvBlockPool {
 public:
  // Blocks 1..num_blocks; block 0 is for padding and never handed out. `cache` is for as many
  // blocks; null: nothing is cached.
  explicit KvBlockPool(int64_t num_blocks, std::unique_ptr<PrefixCache> cache = nullptr);
  // Every list must have been returned: a block still out at the end is a leak, and a bug.
  ~KvBlockPool();

  // Appends `count` blocks to `blocks`: all of them or none. Running out is an ordinary event.
  [[nodiscard]] bool Grow(std::vector<BlockId>& blocks, int64_t count);
  // Lets go of all of `blocks`, the last one first, and clears the list. A block that is not out is
  // a bug.
  void Return(std::vector<BlockId>& blocks);

  // The longest run of full blocks that `tokens` begin with.
  CachedPrefix FindPrefix(absl::string_view salt, absl::Span<const int32_t> tokens) const;
  // Brings a prefix of the same salt and tokens up to date. As long as nothing was evicted what was
  // found before still holds, and only the block behind it is looked for.
  void UpdatePrefix(absl::string_view salt, absl::Span<const int32_t> tokens,
                    CachedPrefix& prefix) const;
  // Appends the blocks of the prefix, which others may hold too: they are never written again.
  void TakePrefix(const CachedPrefix& prefix, std::vector<BlockId>& blocks);
  // `block` is full, what it holds is computed, and its one holder holds `key.parent`, too. Returns
  // the block to hold from now on: itself, or one that was cached with the same; then `block` is
  // free.
  BlockId CacheBlock(const BlockKey& key, BlockId block);

  bool caches() const { return cache_ != nullptr; }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()) + num_idle(); }
  int64_t num_idle() const { return cache_ == nullptr ? 0 : cache_->num_idle(); }
  int64_t num_blocks() const { return num_blocks_; }

  // For tests. The lists that hold a block:
  int NumHolders(BlockId block) const;
  const PrefixCache* cache() const { return cache_.get(); }

 private:
  bool Cached(BlockId block) const { return cache_ != nullptr && cache_->Contains(block); }

  int64_t num_blocks_;
  std::unique_ptr<PrefixCache> cache_;
  std::vector<BlockId> free_;  // a stack: recently returned blocks are warm in the caches
  std::vector<bool> out_;      // somebody holds it
  uint64_t num_evictions_ = 0;
};

}  // namespace bulkhead
