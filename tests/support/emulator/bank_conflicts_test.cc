#include "tests/support/emulator/bank_conflicts.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/emulator/block.h"
#include "tests/support/emulator/intrinsics.h"

namespace bulkhead::emulator {
namespace {

constexpr int kThreads = 64;
constexpr int kSharedBytes = 33 * 4 * kThreads;

struct Nothing {};

// The turns of a kernel of one block.
int TurnsOf(void (*kernel)(Nothing)) {
  std::map<std::string, int> turns;
  Block block;
  block.set_bank_turns(&turns);
  const Nothing parameters;
  const absl::Status status =
      block.Launch(cuda::KernelOf<1024>("kernel", kernel).kernel,
                   {.block = {kThreads, 1, 1}, .shared_bytes = kSharedBytes}, &parameters,
                   Schedule::kAscending, 1);
  EXPECT_TRUE(status.ok()) << status;
  return turns["kernel"];
}

// Lane i writes `Word` number i * kStride.
template <typename Word, int kStride>
void Write(Nothing) {
  cuda::GridDependencySynchronize();
  auto* const shared = reinterpret_cast<Word*>(cuda::SharedMemory());
  shared[int(threadIdx.x) * kStride] = 1;
}

TEST(BankConflictsTest, WordsSideBySideTakeOneTurn) {
  EXPECT_EQ(TurnsOf(Write<uint32_t, 1>), 1);
  EXPECT_EQ(TurnsOf(Write<uint64_t, 1>), 1);
  EXPECT_EQ(TurnsOf(Write<uint8_t, 1>), 1);
}

TEST(BankConflictsTest, AStrideOfAllBanksTakesATurnForEachLane) {
  EXPECT_EQ(TurnsOf(Write<uint32_t, 2>), 2);
  EXPECT_EQ(TurnsOf(Write<uint32_t, 32>), 32);
  EXPECT_EQ(TurnsOf(Write<uint32_t, 33>), 1);
}

// Rows of 16 bytes, `kStrideBytes` apart.
template <int kStrideBytes>
void LoadRows(Nothing) {
  cuda::GridDependencySynchronize();
  uint32_t r[4];
  cuda::LdMatrixX4(r, cuda::SharedMemory() + cuda::LaneIndex() * kStrideBytes);
}

TEST(BankConflictsTest, RowsOfTilesGoEightAtATime) {
  EXPECT_EQ(TurnsOf(LoadRows<16>), 1);
  EXPECT_EQ(TurnsOf(LoadRows<80>), 1);
  EXPECT_EQ(TurnsOf(LoadRows<64>), 4);
  EXPECT_EQ(TurnsOf(LoadRows<128>), 8);
}

TEST(BankConflictsTest, RoundsOfALoopThatAWarpMeetsInAreApart) {
  const auto kernel = [](Nothing) {
    cuda::GridDependencySynchronize();
    auto* const shared = reinterpret_cast<uint32_t*>(cuda::SharedMemory());
    for (int i = 0; i < cuda::kWarp; ++i) {
      if (int(threadIdx.x) == i) shared[i * 32] = 1;
      cuda::__syncwarp();
    }
  };
  EXPECT_EQ(TurnsOf(kernel), 1);
}

}  // namespace
}  // namespace bulkhead::emulator
