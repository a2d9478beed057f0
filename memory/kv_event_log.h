// KvEventLog: which blocks entered and left the prefix cache, for routers that send a prompt where
// its prefix is cached. One thread writes, one batch per step; any thread reads. All memory is
// allocated by the constructor: the oldest events are overwritten, and a reader that is too late is
// told so.
//
// A block's hash is valid in this process only; 0 stands for no block. Blocks of sequences with a
// salt or an adapter (memory/block_key.h) are left out, and so are KV groups with a window.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"

namespace bulkhead {

struct KvEvent {
  uint64_t hash = 0;
  bool stored = false;       // false: removed
  uint64_t parent_hash = 0;  // of a stored block
  std::vector<int32_t> tokens = {};
};

// The events of one step, or a part of them.
struct KvEventBatch {
  uint64_t number = 0;  // from 1, without gaps
  // Earlier events that the reader has not seen are lost: it must forget every block.
  bool cleared = false;
  uint64_t first_event = 0;  // counts all events since the start
  std::vector<KvEvent> events = {};
};

class KvEventLog {
 public:
  static constexpr int64_t kMaxEvents = 4096;
  static constexpr int64_t kMaxBatchEvents = 256;
  static constexpr int kMaxReaders = 16;

  explicit KvEventLog(int block_tokens);
  static int64_t HostBytes(int block_tokens);

  // The writer's thread.
  void Stored(uint64_t hash, uint64_t parent_hash, absl::Span<const int32_t> tokens);
  void Removed(uint64_t hash);
  // Ends the batch and wakes the readers, if there were events.
  void EndBatch();
  // No more events: readers are woken to find `closed`. Any thread.
  void Close();

  // Any thread. `wake` is called by the threads above, without a lock, whenever there may be more;
  // also once after Unsubscribe. Empty if there are already kMaxReaders.
  std::optional<int> Subscribe(std::function<void()> wake);
  void Unsubscribe(int reader);
  // Batch `next`, or an empty one with `cleared` and the number before the oldest batch kept; none
  // if it does not exist yet. A `next` from before a restart of the server also gives a cleared
  // one.
  std::optional<KvEventBatch> Read(uint64_t next) const;
  // The number of the batch being written.
  uint64_t next_batch() const;
  bool closed() const;

 private:
  struct Entry {
    uint64_t hash = 0;
    uint64_t parent_hash = 0;
    uint64_t batch = 0;
    bool stored = false;
  };

  void Add(const Entry& entry, absl::Span<const int32_t> tokens)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t SlotOf(uint64_t event) const { return event % kMaxEvents; }
  void WakeReaders() ABSL_LOCKS_EXCLUDED(mutex_);

  const int block_tokens_;
  mutable absl::Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);   // [kMaxEvents]: event i in slot i % that
  std::vector<int32_t> tokens_ ABSL_GUARDED_BY(mutex_);  // [kMaxEvents, block_tokens]
  uint64_t num_events_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t batch_begin_ ABSL_GUARDED_BY(mutex_) = 0;  // first event of the batch that is open
  uint64_t next_batch_ ABSL_GUARDED_BY(mutex_) = 1;   // its number
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int next_reader_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int, std::function<void()>> readers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead
