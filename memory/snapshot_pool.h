// SnapshotPool: which snapshots of sequences' states (memory/recurrent_state.h) the ranks have, and
// after which block of the prefix cache each was taken. Accounting only; not thread-safe: owned by
// the block pool. A prefix of a model with states can be reused up to a block with a snapshot.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "memory/block_id.h"

namespace bulkhead {

class SnapshotPool {
 public:
  explicit SnapshotPool(int num_snapshots) : entries_(num_snapshots) {}

  // Takes one to write: a free one, else the least recently used unpinned one; -1 if there is none.
  int Take();
  // `snapshot` is written: the state after `block`. Freed if `block` already has one.
  void Attach(int snapshot, BlockId block);
  // Frees a taken snapshot.
  void Return(int snapshot);

  // The snapshot after `block`; -1 if there is none.
  int Of(BlockId block) const;
  // Keeps it until Unpin, while it waits to be read.
  void Pin(int snapshot);
  void Unpin(int snapshot);
  // Frees the snapshot of `block` unless it is pinned.
  void Drop(BlockId block);

 private:
  struct Entry {
    BlockId block = 0;
    bool taken = false;  // not attached yet
    int pins = 0;
    uint64_t last_use = 0;
  };

  std::vector<Entry> entries_;
  absl::flat_hash_map<BlockId, int> of_block_;
  uint64_t uses_ = 0;
};

}  // namespace bulkhead
