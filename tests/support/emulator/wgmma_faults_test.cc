// Planted mistakes with warpgroup products, each a fault or a NaN sum.
#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/emulator/block.h"
#include "tests/support/emulator/wgmma_intrinsics.h"

namespace bulkhead::emulator {
namespace {

using testing::HasSubstr;

enum class Mistake {
  kNone,
  kNoFence,
  kNoFenceOfOthers,  // other lanes' writes, not read by the product: correct
  kNoBegin,
  kNoWait,
  kReadsEarly,
  kWritesEarly,
  kTilesOfItsOwn,
};

struct Sums {
  float* out = nullptr;
};

// out[thread] = 1 + 16, from products of ones by ones.
template <Mistake kMistake>
void Ones(Sums p) {
  cuda::GridDependencySynchronize();
  const int thread = int(threadIdx.x);
  auto* const tiles = reinterpret_cast<uint32_t*>(cuda::SharedMemory());
  for (int i = thread; i < 16 * 64 / 2; i += cuda::kWarpgroup) tiles[i] = 0x3F803F80;
  if (kMistake != Mistake::kNoFence) cuda::FenceForProducts();
  if (kMistake == Mistake::kNoFenceOfOthers) tiles[16 * 64 / 2 + thread] = 0;
  cuda::__syncthreads();
  float sums[32];
  for (float& sum : sums) sum = 1.0F;
  const uint32_t ones[4] = {0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80};
  if (kMistake != Mistake::kNoBegin) cuda::BeginProducts();
  const int column_step = kMistake == Mistake::kTilesOfItsOwn ? thread / 16 * 16 : 0;
  cuda::ProductBf16(sums, ones, cuda::TilesOf(tiles, column_step), true);
  cuda::CommitProducts();
  if (kMistake == Mistake::kReadsEarly) p.out[thread] = sums[0];
  if (kMistake == Mistake::kWritesEarly) tiles[thread] = 0;
  if (kMistake == Mistake::kNoWait) return;
  cuda::WaitForProducts<0>(sums);
  if (kMistake != Mistake::kReadsEarly) p.out[thread] = sums[0];
}

// out[thread] = 1 + 16 + 16, from two products; the first one's tile is rewritten while the second
// may be in flight.
template <int kLeft>
void OnesTwice(Sums p) {
  cuda::GridDependencySynchronize();
  const int thread = int(threadIdx.x);
  auto* const tiles = reinterpret_cast<uint32_t*>(cuda::SharedMemory());
  constexpr int kTileWords = 16 * 64 / 2;
  for (int i = thread; i < 2 * kTileWords; i += cuda::kWarpgroup) tiles[i] = 0x3F803F80;
  cuda::FenceForProducts();
  cuda::__syncthreads();
  float sums[32];
  for (float& sum : sums) sum = 1.0F;
  const uint32_t ones[4] = {0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80};
  cuda::BeginProducts();
  for (int i = 0; i < 2; ++i) {
    cuda::ProductBf16(sums, ones, cuda::TilesOf(tiles + i * kTileWords, 0), true);
    cuda::CommitProducts();
  }
  cuda::WaitForEarlierProducts<kLeft>();
  cuda::__syncthreads();
  tiles[thread] = 0;
  cuda::WaitForProducts<0>(sums);
  p.out[thread] = sums[0];
}

// A kernel's fault, in all schedules.
std::string FaultOf(void (*function)(Sums), float (&out)[cuda::kWarpgroup]) {
  const CudaKernel kernel = cuda::KernelOf<cuda::kWarpgroup>("ones", function).kernel;
  const Sums parameters{out};
  const LaunchShape shape{.block = {cuda::kWarpgroup, 1, 1}, .shared_bytes = 4096};
  std::string fault;
  for (const Schedule schedule : kAllSchedules) {
    const absl::Status status = Block().Launch(kernel, shape, &parameters, schedule, 1);
    if (status.ok()) return "";
    fault = std::string(status.message());
  }
  return fault;
}

template <Mistake kMistake>
std::string FaultOf(float (&out)[cuda::kWarpgroup]) {
  return FaultOf(Ones<kMistake>, out);
}

TEST(ProductFault, IsNoneWithoutAMistake) {
  float out[cuda::kWarpgroup];
  EXPECT_EQ(FaultOf<Mistake::kNone>(out), "");
  for (const float sum : out) EXPECT_EQ(sum, 17.0F);
  EXPECT_EQ(FaultOf<Mistake::kNoFenceOfOthers>(out), "");
}

TEST(ProductFault, IsEachMistake) {
  float out[cuda::kWarpgroup];
  EXPECT_THAT(FaultOf<Mistake::kNoFence>(out), HasSubstr("did not call FenceForProducts"));
  EXPECT_THAT(FaultOf<Mistake::kNoBegin>(out), HasSubstr("without BeginProducts"));
  EXPECT_THAT(FaultOf<Mistake::kNoWait>(out), HasSubstr("products that it did not wait for"));
  EXPECT_THAT(FaultOf<Mistake::kTilesOfItsOwn>(out), HasSubstr("different tiles"));
}

TEST(ProductFault, IsWritingWhatAProductMayStillRead) {
  float out[cuda::kWarpgroup];
  EXPECT_THAT(FaultOf<Mistake::kWritesEarly>(out), HasSubstr("races"));
}

TEST(ProductFault, IsWritingWhatAProductReadsThatTheWaitLeftInFlight) {
  float out[cuda::kWarpgroup];
  EXPECT_EQ(FaultOf(OnesTwice<1>, out), "");
  for (const float sum : out) EXPECT_EQ(sum, 33.0F);
  EXPECT_THAT(FaultOf(OnesTwice<2>, out), HasSubstr("races"));
}

TEST(ProductFault, IsASumThatIsNoNumberBeforeItIsWaitedFor) {
  float out[cuda::kWarpgroup];
  EXPECT_EQ(FaultOf<Mistake::kReadsEarly>(out), "");
  for (const float sum : out) EXPECT_TRUE(std::isnan(sum));
}

}  // namespace
}  // namespace bulkhead::emulator
