// SnapshotPool: which snapshots of sequences' states (memory/recurrent_state.h) the ranks have, and
// after which block of the prefix cache each is. Accounting only; not thread-safe: owned by the
// block pool. A prefix of a model with states can be taken up to a block that has one.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "memory/block_id.h"

namespace bulkhead {

class SnapshotPool {
 public:
  explicit SnapshotPool(int num_snapshots) : entries_(num_snapshots) {}

  // One to be written: a free one, else the least recently used that is not pinned; -1 if there is
  // none.
  int Take();
  // What was taken is written, and after `block` unless that has one already.
  void Attach(int snapshot, BlockId block);
  // What was taken is free again.
  void Return(int snapshot);

  // Behind `block`; -1 if there is none.
  int Of(BlockId block) const;
  // It is about to be read, and kept until then.
  void Pin(int snapshot);
  void Unpin(int snapshot);
  // `block` needs none any more, unless it is pinned.
  void Drop(BlockId block);

 private:
  struct Entry {
    BlockId block = 0;
    bool taken = false;  // and not attached yet
    int pins = 0;
    uint64_t last_use = 0;
  };

  std::vector<Entry> entries_;
  absl::flat_hash_map<BlockId, int> of_block_;
  uint64_t uses_ = 0;
};

}  // namespace bulkhead
