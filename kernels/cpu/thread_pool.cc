#include "kernels/cpu/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <climits>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace bulkhead {
namespace {

constexpr int kSpins = 1500;  // some tens of microseconds
constexpr int kYields = 50;

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ThreadPool>> ThreadPool::Create(int num_threads, bool may_spin) {
  BH_CHECK(num_threads >= 1);
  std::unique_ptr<ThreadPool> pool(new ThreadPool(num_threads, may_spin));
  // Signals are for the program's own threads: workers inherit a mask that blocks all of them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  absl::Status status;
  pool->workers_.reserve(num_threads - 1);
  try {
    for (int thread = 1; thread < num_threads; ++thread) {
      pool->workers_.emplace_back(&ThreadPool::WorkerLoop, pool.get(), thread);
    }
  } catch (const std::system_error& error) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("the system gave ", pool->workers_.size() + 1, " of ", num_threads,
                     " threads (", error.what(), "); use fewer threads"));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status.ok()) return status;
  return pool;
}

ThreadPool::~ThreadPool() {
  RunTask(nullptr, nullptr);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunTask(Task task, const void* context) {
  const uint32_t num_workers = static_cast<uint32_t>(workers_.size());
  const DefaultFloatMode mode;
  if (num_workers > 0) {
    task_ = task;
    context_ = context;
    unfinished_.store(num_workers, std::memory_order_relaxed);
    // Sequentially consistent, like the sleeper's count: either we see the sleeper or it sees the
    // epoch.
    epoch_.fetch_add(1);
    if (workers_asleep_.load() > 0) FutexWakeAll(epoch_);
  }
  if (task != nullptr) task(context, 0);
  while (true) {
    const uint32_t left = unfinished_.load(std::memory_order_acquire);
    if (left == 0) break;
    WaitWhileEqual(unfinished_, caller_asleep_, left);
  }
}

void ThreadPool::WorkerLoop(int thread) {
  const DefaultFloatMode mode;
  const ComputeThread computes;
  uint32_t seen = 0;
  while (true) {
    WaitWhileEqual(epoch_, workers_asleep_, seen);
    ++seen;
    const Task task = task_;
    if (task != nullptr) task(context_, thread);
    // The caller may return and start the next task, or destroy the pool once it has joined us.
    const bool is_last = unfinished_.fetch_sub(1) == 1;
    if (is_last && caller_asleep_.load() > 0) FutexWakeAll(unfinished_);
    if (task == nullptr) return;
  }
}

void ThreadPool::WaitWhileEqual(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers,
                                uint32_t old) {
  for (int i = 0; may_spin_ && i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    _mm_pause();
  }
  // Only among our own threads: if another process wants the core, each yield costs one of its time
  // slices; sleeping leaves it a core and lets the late thread move to ours.
  for (int i = 0; !may_spin_ && i < kYields; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    sched_yield();
  }
  sleepers.fetch_add(1);
  while (word.load() == old) FutexWait(word, old);
  sleepers.fetch_sub(1);
}

}  // namespace bulkhead
