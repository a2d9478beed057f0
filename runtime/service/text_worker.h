// TextWorker: one thread that parses long messages and tokenises long texts, so that they do not
// occupy gRPC's few callback threads. Work is done in order; the queue is bounded in bytes and so
// in time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"

namespace bulkhead {

class TextWorker {
 public:
  // Longer texts go here; shorter ones are tokenised on arrival, in about a millisecond.
  static constexpr size_t kLongTextBytes = 16 << 10;
  // Longer messages go here unparsed, so that parsing memory is needed only once.
  static constexpr size_t kLongMessageBytes = 64 << 10;

  // `most_waiting_bytes`: in addition to one text that finds an empty queue.
  explicit TextWorker(int64_t most_waiting_bytes);
  // Finishes queued work first.
  ~TextWorker();
  TextWorker(const TextWorker&) = delete;
  TextWorker& operator=(const TextWorker&) = delete;

  // `bytes` of input, owned by `work`. RESOURCE_EXHAUSTED if too much is queued; `work` is then
  // dropped.
  absl::Status Post(size_t bytes, std::function<void()> work);

 private:
  void Loop();

  const size_t most_waiting_bytes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  struct Waiting {
    size_t bytes = 0;
    std::function<void()> work;
  };
  std::deque<Waiting> queue_;
  size_t waiting_bytes_ = 0;  // queued and in progress
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bulkhead
