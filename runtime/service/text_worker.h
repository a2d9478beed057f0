// TextWorker: one thread that tokenises long texts, so that they do not keep gRPC's few callback
// threads from moving everybody's tokens. Work is done in order; its length is bounded by the calls
// that wait for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace bulkhead {

class TextWorker {
 public:
  // Longer texts belong here; a shorter one is tokenised in about a millisecond, where it arrives.
  static constexpr size_t kLongTextBytes = 16 << 10;
  static constexpr int kLongTokenIds = 16 << 10;

  TextWorker();
  // Runs what is queued, then ends.
  ~TextWorker();
  TextWorker(const TextWorker&) = delete;
  TextWorker& operator=(const TextWorker&) = delete;

  void Post(std::function<void()> work);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bulkhead
