#include "comm/wait.h"
#include "base/clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace bulkhead {
namespace {

TEST(Wait, CountsMayWrapAround) {
  EXPECT_TRUE(HasReached(5, 5));
  EXPECT_TRUE(HasReached(6, 5));
  EXPECT_FALSE(HasReached(4, 5));
  EXPECT_TRUE(HasReached(2, 0xFFFFFFF0));
  EXPECT_FALSE(HasReached(0xFFFFFFF0, 2));
}

TEST(Wait, TwoThreadsHandOverManyTimesOverTheWrap) {
  for (const bool may_spin : {false, true}) {
    Signal ping{};
    Signal pong{};
    std::atomic<uint32_t> abort = 0;
    constexpr uint32_t kFirst = 0xFFFFFF00;
    ping.value = pong.value = kFirst;
    int64_t shared = 0;  // written by both in turn: a race unless the signals order them
    std::thread other([&] {
      for (uint32_t i = 1; i <= 2000; ++i) {
        ASSERT_EQ(WaitFor(ping, kFirst + i, abort, {may_spin}), WaitResult::kReached);
        ++shared;
        Raise(pong, kFirst + i);
      }
    });
    for (uint32_t i = 1; i <= 2000; ++i) {
      ++shared;
      Raise(ping, kFirst + i);
      ASSERT_EQ(WaitFor(pong, kFirst + i, abort, {may_spin}), WaitResult::kReached);
    }
    other.join();
    EXPECT_EQ(shared, 4000);
  }
}

TEST(Wait, EndsAtItsDeadlineAndWhenAborted) {
  Signal signal{};
  std::atomic<uint32_t> abort = 0;
  EXPECT_EQ(WaitFor(signal, 1, abort, {.may_spin = true, .deadline_ns = MonotonicNanos()}),
            WaitResult::kDeadline);
  std::thread aborter([&] { abort = 1; });
  EXPECT_EQ(WaitFor(signal, 1, abort, {}), WaitResult::kAborted);
  aborter.join();
  EXPECT_EQ(signal.sleepers.load(), 0U);
}

}  // namespace
}  // namespace bulkhead
