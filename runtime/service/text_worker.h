// TextWorker: one thread that tokenises long texts, so that they do not keep gRPC's few callback
// threads from moving everybody's tokens. Work is done in order; what waits for it is bounded, in
// bytes and so in time.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"

namespace bulkhead {

class TextWorker {
 public:
  // Longer texts belong here; a shorter one is tokenised in about a millisecond, where it arrives.
  static constexpr size_t kLongTextBytes = 16 << 10;
  static constexpr int kLongTokenIds = 16 << 10;

  // What waits at the most, beside one text that finds nothing before it: a few seconds of work.
  static constexpr size_t kMostWaitingBytes = 32 << 20;

  TextWorker();
  // Runs what is queued, then ends.
  ~TextWorker();
  TextWorker(const TextWorker&) = delete;
  TextWorker& operator=(const TextWorker&) = delete;

  // `bytes` of input. RESOURCE_EXHAUSTED when too much waits already; `work` is dropped then.
  absl::Status Post(size_t bytes, std::function<void()> work);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  struct Waiting {
    size_t bytes = 0;
    std::function<void()> work;
  };
  std::deque<Waiting> queue_;
  size_t waiting_bytes_ = 0;  // of the queue, and of what is being worked on
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bulkhead
