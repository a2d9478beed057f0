// ThreadPool: every item once, reuse without end, and no CPU used while idle.
#include "kernels/cpu/thread_pool.h"

#include <time.h>

#include <mutex>
#include <set>

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

std::unique_ptr<ThreadPool> NewPool(int num_threads, bool may_spin) {
  return std::move(ThreadPool::Create(num_threads, may_spin)).value();
}

TEST(ThreadPoolTest, EveryItemIsDoneOnceByAThreadOfItsOwn) {
  for (const bool may_spin : {false, true}) {
    for (const int threads : {1, 2, 3, 5, 8}) {
      const std::unique_ptr<ThreadPool> pool = NewPool(threads, may_spin);
      for (const int64_t count : {0, 1, 2, 4, 7, 100}) {
        std::vector<int> done(count, 0);
        std::mutex mutex;
        std::set<int> used;
        pool->ParallelFor(count, [&](int thread, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++done[i];
          const std::lock_guard<std::mutex> lock(mutex);
          EXPECT_TRUE(used.insert(thread).second);
        });
        for (const int times : done) EXPECT_EQ(times, 1);
        EXPECT_EQ(used.size(), static_cast<size_t>(std::min<int64_t>(count, threads)));
      }
    }
  }
}

TEST(ThreadPoolTest, PartsAreEqualToWithinOne) {
  for (const int64_t count : {0, 1, 10, 63, 64, 65, 1000003}) {
    for (const int64_t parts : {1, 2, 3, 64}) {
      EXPECT_EQ(ThreadPool::PartBegin(count, 0, parts), 0);
      EXPECT_EQ(ThreadPool::PartBegin(count, parts, parts), count);
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t size = ThreadPool::PartBegin(count, part + 1, parts) -
                             ThreadPool::PartBegin(count, part, parts);
        EXPECT_GE(size, count / parts);
        EXPECT_LE(size, count / parts + 1);
      }
    }
  }
}

TEST(ThreadPoolTest, IsReusedThousandsOfTimes) {
  for (const bool may_spin : {false, true}) {
    const std::unique_ptr<ThreadPool> pool = NewPool(3, may_spin);
    std::vector<int64_t> sums(3 * 16, 0);  // a cache line each
    for (int round = 0; round < 2000; ++round) {
      pool->Run([&](int thread) { sums[thread * 16] += round; });
    }
    for (int thread = 0; thread < 3; ++thread) EXPECT_EQ(sums[thread * 16], 1999 * 2000 / 2);
  }
}

TEST(ThreadPoolTest, ThreadsSeeWhatTheCallerWroteAndTheCallerWhatTheyWrote) {
  const std::unique_ptr<ThreadPool> pool = NewPool(4, false);
  std::vector<int64_t> values(4, 1);
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> next(4);
    pool->Run([&](int thread) { next[thread] = values[(thread + 1) % 4] + 1; });
    values = next;
  }
  EXPECT_EQ(values, std::vector<int64_t>(4, 501));
}

TEST(ThreadPoolTest, PoolsComeAndGo) {
  for (int round = 0; round < 50; ++round) {
    const std::unique_ptr<ThreadPool> pool = NewPool(4, round % 2 == 0);
    if (round % 3 == 0) pool->Run([](int) {});
  }
}

TEST(ThreadPoolTest, EveryThreadRunsInTheDefaultFloatingPointMode) {
  const std::unique_ptr<ThreadPool> pool = NewPool(3, false);
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(0x9FC0);
  std::vector<unsigned> modes(3);
  pool->Run([&](int thread) { modes[thread] = __builtin_ia32_stmxcsr(); });
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  for (const unsigned mode : modes) EXPECT_EQ(mode & 0xFFC0, 0x1F80u);
  EXPECT_EQ(after, 0x9FC0u);
}

// CPU time of the process stands still while the pool waits. The waiting thread sleeps until the
// pool has used none over a whole interval, so a pool that spins for ever never ends this test.
TEST(ThreadPoolTest, AnIdlePoolUsesNoCpu) {
  const std::unique_ptr<ThreadPool> pool = NewPool(4, true);
  pool->Run([](int) {});
  const auto cpu_ns = [] {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
  };
  bool is_idle = false;
  for (int attempt = 0; attempt < 100 && !is_idle; ++attempt) {
    const int64_t before = cpu_ns();
    const timespec interval{0, 50 * 1000 * 1000};
    nanosleep(&interval, nullptr);
    is_idle = cpu_ns() - before < 2 * 1000 * 1000;  // under a twentieth of one core
  }
  EXPECT_TRUE(is_idle);
}

}  // namespace
}  // namespace bulkhead
