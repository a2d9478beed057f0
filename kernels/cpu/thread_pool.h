// ThreadPool: the fixed threads that the CPU kernels run on. The calling thread is thread 0 and
// takes part. Nothing is allocated after Create. A wait spins briefly, then yields, then sleeps on
// a futex, so an idle pool uses no CPU. One thread at a time may call ParallelFor or Run, and not
// from inside one.
//
// Every thread, the caller included, runs kernels with the default floating point mode: rounding to
// nearest even, no flushing of denormals. The caller's own mode is restored when the call returns.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/float_mode.h"
#include "memory/compute_threads.h"

namespace bulkhead {

class ThreadPool {
 public:
  static constexpr int64_t kWorkWorthWaking = 32768;

  // RESOURCE_EXHAUSTED when no more threads can be created. `may_spin` false: waits never spin.
  static absl::StatusOr<std::unique_ptr<ThreadPool>> Create(int num_threads, bool may_spin);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int num_threads() const { return num_threads_; }

  // body(thread) once on every thread, thread in [0, num_threads). Returns when all have returned.
  template <typename Body>
  void Run(const Body& body) {
    RunTask([](const void* context, int thread) { (*static_cast<const Body*>(context))(thread); },
            &body);
  }

  // body(thread, begin, end) for contiguous parts of [0, count), equal to within one item, part i
  // on thread i; a thread without items is not called.
  template <typename Body>
  void ParallelFor(int64_t count, const Body& body) {
    if (count <= 0) return;
    Run([&](int thread) {
      const int64_t begin = PartBegin(count, thread, num_threads_);
      const int64_t end = PartBegin(count, thread + 1, num_threads_);
      if (begin < end) body(thread, begin, end);
    });
  }

  // The same, but only on the caller if `work` (in multiply-adds, or numbers touched) is too small
  // to wake the others.
  template <typename Body>
  void ParallelForWork(int64_t count, int64_t work, const Body& body) {
    if (work >= kWorkWorthWaking && num_threads_ > 1) return ParallelFor(count, body);
    const DefaultFloatMode mode;
    if (count > 0) body(0, int64_t{0}, count);
  }

  // The begin of part `part` of [0, count), split into `parts`.
  static constexpr int64_t PartBegin(int64_t count, int64_t part, int64_t parts) {
    return count / parts * part + (count % parts * part) / parts;
  }

 private:
  using Task = void (*)(const void* context, int thread);

  ThreadPool(int num_threads, bool may_spin) : num_threads_(num_threads), may_spin_(may_spin) {}
  void RunTask(Task task, const void* context);
  void WorkerLoop(int thread);
  // Waits until `word` is no longer `old`.
  void WaitWhileEqual(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers, uint32_t old);

  const ComputeThread caller_;  // the thread that creates the pool
  const int num_threads_;
  const bool may_spin_;
  std::vector<std::thread> workers_;
  // Written before epoch_ grows, read after it was seen to grow.
  Task task_ = nullptr;  // null: the workers end
  const void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};  // increases by one per task
  std::atomic<uint32_t> workers_asleep_{0};
  alignas(64) std::atomic<uint32_t> unfinished_{0};  // workers that still run the task
  std::atomic<uint32_t> caller_asleep_{0};
};

}  // namespace bulkhead
