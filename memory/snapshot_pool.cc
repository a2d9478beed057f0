#include "memory/snapshot_pool.h"

#include "base/check.h"

namespace bulkhead {

int SnapshotPool::Take() {
  int best = -1;
  for (int i = 0; i < static_cast<int>(entries_.size()); ++i) {
    const Entry& entry = entries_[i];
    if (entry.taken || entry.pins > 0) continue;
    // Free ones have last_use 0.
    if (best < 0 || entry.last_use < entries_[best].last_use) best = i;
  }
  if (best < 0) return -1;
  if (entries_[best].block != 0) of_block_.erase(entries_[best].block);
  entries_[best] = {.taken = true};
  return best;
}

void SnapshotPool::Attach(int snapshot, BlockId block) {
  BH_CHECK(entries_[snapshot].taken && block > 0);
  if (!of_block_.emplace(block, snapshot).second) return Return(snapshot);
  entries_[snapshot] = {.block = block, .last_use = ++uses_};
}

void SnapshotPool::Return(int snapshot) {
  BH_CHECK(entries_[snapshot].taken);
  entries_[snapshot] = {};
}

int SnapshotPool::Of(BlockId block) const {
  const auto found = of_block_.find(block);
  return found == of_block_.end() ? -1 : found->second;
}

void SnapshotPool::Pin(int snapshot) {
  BH_CHECK(entries_[snapshot].block != 0);
  ++entries_[snapshot].pins;
  entries_[snapshot].last_use = ++uses_;
}

void SnapshotPool::Unpin(int snapshot) {
  BH_CHECK(entries_[snapshot].pins > 0);
  --entries_[snapshot].pins;
}

void SnapshotPool::Drop(BlockId block) {
  const auto found = of_block_.find(block);
  if (found == of_block_.end() || entries_[found->second].pins > 0) return;
  entries_[found->second] = {};
  of_block_.erase(found);
}

}  // namespace bulkhead
