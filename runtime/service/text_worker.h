// TextWorker: one thread that parses long messages and tokenises long texts, so that they do not
// occupy the few threads that calls arrive on. Work is done in order; the queue is bounded in bytes
// and so in time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace bulkhead {

class TextWorker {
 public:
  // Longer texts go here; shorter ones are tokenised on arrival, in about a millisecond.
  static constexpr size_t kLongTextBytes = 16 << 10;
  // Longer messages go here unparsed, so that parsing memory is needed only once.
  static constexpr size_t kLongMessageBytes = 64 << 10;
  // Minimum size counted for work that compiles a grammar, or follows a resumed answer along one:
  // either may take most of a second, so few of them wait.
  static constexpr size_t kGrammarBytes = 1 << 20;

  // `most_waiting_bytes`: in addition to one text that finds an empty queue.
  explicit TextWorker(int64_t most_waiting_bytes);
  // Finishes queued work first.
  ~TextWorker();
  TextWorker(const TextWorker&) = delete;
  TextWorker& operator=(const TextWorker&) = delete;

  // `bytes` of input, owned by `work`. RESOURCE_EXHAUSTED if too much is queued; `work` is then
  // dropped. Work that posts more runs here itself, and no longer counts as queued. `grammar`, if
  // not 0, is a hash of the grammar that the work compiles: it counts as kGrammarBytes, unless work
  // with the same grammar is before it.
  absl::Status Post(size_t bytes, std::function<void()> work, size_t grammar = 0);

 private:
  void Loop();

  const size_t most_waiting_bytes_;
  struct Waiting {
    size_t bytes = 0;
    size_t grammar = 0;
    std::function<void()> work;
  };
  absl::Mutex mutex_;
  std::deque<Waiting> queue_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // queued and in progress
  size_t running_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the current or last work
  absl::flat_hash_map<size_t, int> num_of_grammar_
      ABSL_GUARDED_BY(mutex_);  // queued and in progress, by grammar
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace bulkhead
