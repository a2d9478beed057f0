// Planted mistakes typical of kernels: each must be a fault, or give a wrong result in some
// schedule, or bytes that differ between schedules. Each is next to its correct kernel.
#include <numeric>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/emulator/block.h"
#include "tests/support/emulator/intrinsics.h"

namespace bulkhead::emulator {
namespace {

constexpr int kThreads = 96;

struct Floats {
  const float* in = nullptr;
  float* out = nullptr;
};

// The results of `kernel` for 0, 1, 2 ... in each schedule; only distinct ones, empty for a fault.
std::set<std::vector<float>> Results(void (*kernel)(Floats)) {
  std::set<std::vector<float>> results;
  alignas(16) float in[kThreads * 4];
  std::iota(in, in + kThreads * 4, 0.0F);
  for (const Schedule schedule : kAllSchedules) {
    std::vector<float> out(kThreads, -1.0F);
    const Floats parameters{in, out.data()};
    const LaunchShape shape{.block = {kThreads, 1, 1}, .shared_bytes = kThreads * 16};
    const CudaKernel erased = cuda::KernelOf<1024>("planted", kernel).kernel;
    const absl::Status status = Block().Launch(erased, shape, &parameters, schedule, 7);
    results.insert(status.ok() ? out : std::vector<float>());
  }
  return results;
}

std::vector<float> Expected(float (*of)(int thread)) {
  std::vector<float> expected(kThreads);
  for (int i = 0; i < kThreads; ++i) expected[i] = of(i);
  return expected;
}

float* Shared() { return reinterpret_cast<float*>(cuda::SharedMemory()); }

// out[i] = in[the thread across the block].
template <bool kBarrier>
void Mirror(Floats p) {
  cuda::GridDependencySynchronize();
  const int i = threadIdx.x;
  Shared()[i] = p.in[i];
  if (kBarrier) cuda::__syncthreads();
  p.out[i] = Shared()[kThreads - 1 - i];
}

TEST(PlantedFault, NoBarrierBetweenWritingAndReading) {
  EXPECT_THAT(Results(Mirror<true>),
              testing::ElementsAre(Expected(+[](int i) { return float(kThreads - 1 - i); })));
  EXPECT_NE(Results(Mirror<false>), Results(Mirror<true>));
}

// Two rounds over the same shared memory: out[i] = in[i + 1] + 2 in[i + 1].
template <bool kBarrier>
void Reuse(Floats p) {
  cuda::GridDependencySynchronize();
  const int i = threadIdx.x;
  const int next = (i + 1) % kThreads;
  float sum = 0;
  for (int round = 1; round <= 2; ++round) {
    Shared()[i] = p.in[i] * static_cast<float>(round);
    cuda::__syncthreads();
    sum += Shared()[next];
    if (kBarrier) cuda::__syncthreads();
  }
  p.out[i] = sum;
}

TEST(PlantedFault, NoBarrierBeforeSharedMemoryIsWrittenAgain) {
  EXPECT_THAT(
      Results(Reuse<true>),
      testing::ElementsAre(Expected(+[](int i) { return 3.0F * float((i + 1) % kThreads); })));
  EXPECT_NE(Results(Reuse<false>), Results(Reuse<true>));
}

// Each thread copies four numbers to shared memory and reads its own.
template <int kLeft>
void Aside(Floats p) {
  cuda::GridDependencySynchronize();
  const int i = threadIdx.x;
  cuda::CpAsync16(Shared() + 4 * i, p.in + 4 * i, true);
  cuda::CpAsyncCommit();
  cuda::CpAsyncWait<kLeft>();
  p.out[i] = Shared()[4 * i];
  cuda::CpAsyncWait<0>();
}

TEST(PlantedFault, OneGroupOfCopiesTooFewWaitedFor) {
  const std::vector<float> expected = Expected(+[](int i) { return 4.0F * float(i); });
  EXPECT_THAT(Results(Aside<0>), testing::ElementsAre(expected));
  EXPECT_THAT(Results(Aside<1>), testing::Not(testing::Contains(expected)));
}

// out[2 (i % 4) ...]: a product with the identity, which returns the rows of a.
template <bool kSwapped>
void Identity(Floats p) {
  cuda::GridDependencySynchronize();
  const int g = cuda::LaneIndex() / 4;
  const int j = cuda::LaneIndex() % 4;
  const auto pair = [&](int row, int column) {
    return cuda::Bf16Pair(p.in[row * 16 + column], p.in[row * 16 + column + 1]);
  };
  uint32_t a[4] = {pair(g, 2 * j), pair(g + 8, 2 * j), pair(g, 2 * j + 8), pair(g + 8, 2 * j + 8)};
  if (kSwapped) {
    const uint32_t a1 = a[1];
    a[1] = a[2];
    a[2] = a1;
  }
  const auto one = [&](int row) { return row == g ? 1.0F : 0.0F; };
  const uint32_t b[2] = {cuda::Bf16Pair(one(2 * j), one(2 * j + 1)), 0};
  float c[4] = {};
  cuda::MmaBf16(c, a, b);
  p.out[int(threadIdx.x)] = c[0] + 100.0F * c[2];
}

TEST(PlantedFault, TwoRegistersOfAFragmentSwapped) {
  const std::vector<float> expected = Expected(+[](int i) {
    const int first = i % 32 / 4 * 16 + i % 4 * 2;
    return float(first) + 100.0F * float(first + 8 * 16);
  });
  EXPECT_THAT(Results(Identity<false>), testing::ElementsAre(expected));
  EXPECT_THAT(Results(Identity<true>), testing::Not(testing::Contains(expected)));
}

}  // namespace
}  // namespace bulkhead::emulator
