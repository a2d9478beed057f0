// KvBlockPool: which blocks of the KV cache are free. Accounting only: one pool on rank 0 speaks
// for the equal arenas of all ranks. Not thread-safe: the coordinator owns it.
#pragma once

#include <cstdint>
#include <vector>

namespace bulkhead {

using BlockId = int32_t;

class KvBlockPool {
 public:
  // Blocks 1..num_blocks; block 0 is for padding and never handed out.
  explicit KvBlockPool(int64_t num_blocks);
  // Every list must have been returned: a block still out at the end is a leak, and a bug.
  ~KvBlockPool();

  // Appends `count` blocks to `blocks`: all of them or none. Running out is an ordinary event.
  [[nodiscard]] bool Grow(std::vector<BlockId>& blocks, int64_t count);
  // Takes all of `blocks` back and clears the list. A block that is not out is a bug.
  void Return(std::vector<BlockId>& blocks);

  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_blocks() const { return num_blocks_; }

 private:
  int64_t num_blocks_;
  std::vector<BlockId> free_;  // a stack: recently returned blocks are warm in the caches
  std::vector<bool> out_;
};

}  // namespace bulkhead
