#include "memory/compute_threads.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include <unistd.h>

namespace bulkhead {
namespace {

// A thread that computes, or sleeps, until it is told to end.
class Worker {
 public:
  explicit Worker(bool sleeps) : thread_([this, sleeps] { Work(sleeps); }) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return began_; });
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void Work(bool sleeps) {
    const ComputeThread computes;
    std::unique_lock lock(mutex_);
    began_ = true;
    changed_.notify_all();
    if (sleeps) changed_.wait(lock, [this] { return ends_; });
    while (!ends_) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool began_ = false;
  bool ends_ = false;
  std::thread thread_;
};

constexpr int64_t kSecond = 1'000'000'000;

TEST(StandstillClockTest, NothingStandsStillWhereNoThreadComputes) {
  IdleClock clock;
  EXPECT_EQ(clock.IdleNanos(kSecond), 0);
  EXPECT_EQ(clock.IdleNanos(2 * kSecond), 0);
}

TEST(StandstillClockTest, AThreadThatSleepsStandsStillFromTheLookThatSawItRunLast) {
  const Worker worker(/*sleeps=*/true);
  IdleClock clock;
  // The thread may not be asleep yet at first.
  int64_t now_ns = 0;
  while (clock.IdleNanos(now_ns += kSecond) == 0) usleep(1000);
  for (int look = 2; look <= 5; ++look) {
    EXPECT_EQ(clock.IdleNanos(now_ns += kSecond), look * kSecond);
  }
}

TEST(StandstillClockTest, AThreadThatRunsOrWaitsForACoreNeverStandsStill) {
  const Worker sleeper(/*sleeps=*/true);
  const Worker worker(/*sleeps=*/false);
  IdleClock clock;
  for (int look = 1; look <= 50; ++look) EXPECT_EQ(clock.IdleNanos(look * kSecond), 0);
}

TEST(StandstillClockTest, AThreadThatLeavesIsNotWatchedAnyLonger) {
  IdleClock clock;
  {
    const Worker worker(/*sleeps=*/true);
    clock.IdleNanos(kSecond);
  }
  EXPECT_EQ(clock.IdleNanos(2 * kSecond), 0);
}

TEST(StandstillClockTest, WhereNobodyLookedForLongNothingIsKnown) {
  const Worker worker(/*sleeps=*/true);
  IdleClock clock;
  int64_t now_ns = 0;
  while (clock.IdleNanos(now_ns += kSecond) == 0) usleep(1000);
  EXPECT_EQ(clock.IdleNanos(now_ns += 8 * kSecond), 0);
  EXPECT_EQ(clock.IdleNanos(now_ns + kSecond), kSecond);
}

}  // namespace
}  // namespace bulkhead
