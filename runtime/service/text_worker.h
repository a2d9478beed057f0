// TextWorker: one thread that parses long messages and tokenises long texts, so that they do not
// keep gRPC's few callback threads from moving everybody's tokens. Work is done in order; what
// waits for it is bounded, in bytes and so in time.
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
  // Longer texts belong here; a shorter one is tokenised in about a millisecond, where it arrives.
  static constexpr size_t kLongTextBytes = 16 << 10;
  // So do longer messages, unparsed: what parsing takes is then taken once.
  static constexpr size_t kLongMessageBytes = 64 << 10;

  // `most_waiting_bytes`: beside one text that finds nothing before it.
  explicit TextWorker(int64_t most_waiting_bytes);
  // Runs what is queued, then ends.
  ~TextWorker();
  TextWorker(const TextWorker&) = delete;
  TextWorker& operator=(const TextWorker&) = delete;

  // `bytes` of input, which `work` owns. RESOURCE_EXHAUSTED when too much waits already; `work` is
  // dropped then.
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
  size_t waiting_bytes_ = 0;  // of the queue, and of what is being worked on
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bulkhead
