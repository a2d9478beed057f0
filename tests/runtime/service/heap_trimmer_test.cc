#include "runtime/service/heap_trimmer.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <thread>
#include <vector>

namespace bulkhead {
namespace {

constexpr int kPieces = 64 << 10;
constexpr size_t kPieceBytes = 1 << 10;
constexpr int64_t kAllBytes = int64_t{kPieces} * kPieceBytes;

int64_t ResidentBytes() {
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

TEST(HeapTrimmerTest, WhatWasFreedGoesBackToTheSystem) {
  const int64_t before = ResidentBytes();
  const std::unique_ptr<char[]> kept = UseAndFreeMuch();
  // A sanitizer's heap is not malloc's.
  if (static_cast<int64_t>(mallinfo2().fordblks) < kAllBytes / 2) GTEST_SKIP();
  ASSERT_GT(ResidentBytes(), before + kAllBytes / 2) << "nothing to trim";
  HeapTrimmer trimmer(absl::Milliseconds(1));
  trimmer.TrimLater();
  // Ended by the test's own time limit.
  while (ResidentBytes() > before + kAllBytes / 4) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(HeapTrimmerTest, ItsEndDoesNotWaitForTheDelay) {
  HeapTrimmer trimmer(absl::Hours(1));
  trimmer.TrimLater();
}

}  // namespace
}  // namespace bulkhead
