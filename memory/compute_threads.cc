#include "memory/compute_threads.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxPollGap = 1'000'000'000;

struct Thread {
  pid_t id = 0;
  clockid_t clock = 0;
};

struct AllThreads {
  absl::Mutex mutex;
  std::vector<Thread> threads ABSL_GUARDED_BY(mutex);
};

AllThreads& All() {
  static AllThreads* const all = new AllThreads;  // outlives every thread
  return *all;
}

int64_t NanosOf(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The state letter in /proc/self/task/ID/stat, or 0.
char StateOf(pid_t thread) {
  char text[512];
  std::snprintf(text, sizeof(text), "/proc/self/task/%d/stat", thread);
  const int fd = open(text, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* const name_end = std::strrchr(text, ')');
  return name_end != nullptr && name_end[1] == ' ' ? name_end[2] : 0;
}

}  // namespace

ComputeThread::ComputeThread() : id_(gettid()) {
  Thread thread;
  thread.id = id_;
  BH_CHECK(pthread_getcpuclockid(pthread_self(), &thread.clock) == 0);
  AllThreads& all = All();
  const absl::MutexLock lock(&all.mutex);
  all.threads.push_back(thread);
}

ComputeThread::~ComputeThread() {
  AllThreads& all = All();
  const absl::MutexLock lock(&all.mutex);
  std::vector<Thread>& threads = all.threads;
  const auto mine = std::find_if(threads.begin(), threads.end(),
                                 [&](const Thread& thread) { return thread.id == id_; });
  BH_CHECK(mine != threads.end());
  threads.erase(mine);
}

int64_t ComputeThread::AllCpuNanos() {
  AllThreads& all = All();
  const absl::MutexLock lock(&all.mutex);
  int64_t sum_ns = 0;
  for (const Thread& thread : all.threads) sum_ns += NanosOf(thread.clock);
  return sum_ns;
}

bool ComputeThread::AnyIsBusy() {
  AllThreads& all = All();
  const absl::MutexLock lock(&all.mutex);
  return std::any_of(all.threads.begin(), all.threads.end(), [](const Thread& thread) {
    const char state = StateOf(thread.id);
    return state == 0 || state == 'R' || state == 'D';
  });
}

int64_t IdleClock::IdleNanos(int64_t now_ns) {
  // Read first: then the clocks include the work of a thread that now sleeps.
  const bool busy = ComputeThread::AnyIsBusy();
  const int64_t cpu_ns = ComputeThread::AllCpuNanos();
  const bool blind = now_ns - std::exchange(polled_ns_, now_ns) > kMaxPollGap;
  if (blind || busy || cpu_ns == 0 || cpu_ns != cpu_ns_) {
    cpu_ns_ = cpu_ns;
    since_ns_ = now_ns;
  }
  return now_ns - since_ns_;
}

}  // namespace bulkhead
