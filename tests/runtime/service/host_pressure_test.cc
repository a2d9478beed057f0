#include "runtime/service/host_pressure.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

namespace bulkhead {
namespace {

constexpr int kPieces = 64 << 10;
constexpr size_t kPieceBytes = 1 << 10;
constexpr int64_t kAllBytes = int64_t{kPieces} * kPieceBytes;

int64_t Resident() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Like a server's threads: many allocations, of which the last one is kept. Returns that one.
std::unique_ptr<char[]> UseAndFreeMuch() {
  std::unique_ptr<char[]> last;
  std::thread([&last] {
    std::vector<std::unique_ptr<char[]>> pieces;
    for (int i = 0; i < kPieces; ++i) {
      pieces.push_back(std::make_unique<char[]>(kPieceBytes));  // zeroed, and so resident
    }
    last = std::move(pieces.back());
  }).join();
  return last;
}

TEST(HostPressureTest, SaysWhatPartOfTheBudgetIsTakenAndRefusesCalls) {
  HostCounters counters;
  std::atomic<int64_t> resident{500};
  HostPressure pressure(1000, &counters, [&] { return resident.load(); });
  resident = 1400;  // loading
  pressure.Read();
  EXPECT_EQ(pressure.percent(), 0);
  EXPECT_FALSE(pressure.refuses_calls());
  pressure.SetReady();
  EXPECT_EQ(counters.resident_bytes_at_ready, 1400);
  struct {
    int64_t bytes;
    int percent;
    bool refuses;
  } const cases[] = {{1400, 0, false}, {1300, 0, false},  {2240, 84, false},
                     {2250, 85, true}, {3400, 200, true}, {1500, 10, false}};
  for (const auto& c : cases) {
    resident = c.bytes;
    pressure.Read();
    EXPECT_EQ(pressure.percent(), c.percent) << c.bytes;
    EXPECT_EQ(pressure.refuses_calls(), c.refuses) << c.bytes;
  }
  EXPECT_EQ(counters.resident_bytes.peak(), 3400);
}

TEST(HostPressureTest, WithoutABudgetItOnlyReads) {
  HostCounters counters;
  HostPressure pressure(0, &counters, [] { return int64_t{1} << 40; });
  pressure.SetReady();
  pressure.Read();
  EXPECT_EQ(pressure.percent(), 0);
  EXPECT_FALSE(pressure.refuses_calls());
  EXPECT_EQ(counters.resident_bytes.now(), int64_t{1} << 40);
}

TEST(HostPressureTest, WhatEndedCallsFreedGoesBackToTheSystem) {
  const int64_t before = Resident();
  const std::unique_ptr<char[]> kept = UseAndFreeMuch();
  // A sanitizer's heap is not malloc's.
  if (static_cast<int64_t>(mallinfo2().fordblks) < kAllBytes / 2) GTEST_SKIP();
  ASSERT_GT(Resident(), before + kAllBytes / 2) << "nothing to trim";
  HostCounters counters;
  // So little that it would not be trimmed for itself.
  HostPressure pressure(0, &counters, [] { return int64_t{1}; });
  pressure.SetReady();
  pressure.CallEnded();
  // Ended by the test's own time limit.
  while (Resident() > before + kAllBytes / 4) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace
}  // namespace bulkhead
