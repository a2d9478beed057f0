#include "runtime/service/heap_trimmer.h"

#include <malloc.h>

namespace bulkhead {

HeapTrimmer::HeapTrimmer(absl::Duration delay) : delay_(delay), thread_([this] { Loop(); }) {}

HeapTrimmer::~HeapTrimmer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void HeapTrimmer::TrimLater() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (wanted_) return;
    wanted_ = true;
  }
  wake_.notify_one();
}

void HeapTrimmer::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return wanted_ || stopping_; });
    wake_.wait_for(lock, absl::ToChronoNanoseconds(delay_), [this] { return stopping_; });
    if (stopping_) return;
    wanted_ = false;
    lock.unlock();
    malloc_trim(0);
    lock.lock();
    wake_.wait_for(lock, absl::ToChronoNanoseconds(delay_), [this] { return stopping_; });
  }
}

}  // namespace bulkhead
