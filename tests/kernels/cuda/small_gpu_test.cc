// What the CUDA backend does on GPUs with less shared memory than an A100 (sm_86, sm_89, sm_120),
// and to heads of more than 256 numbers on an A100, which has less than an H100.
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_sizes.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/paged_step.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

constexpr int64_t kSmallSharedBytes = 99 << 10;
constexpr int64_t kA100SharedBytes = 163 << 10;
constexpr uint32_t kSeed = 20;

CudaUnderTest SmallGpu(int64_t shared_bytes = kSmallSharedBytes) {
  emulator::DeviceOptions options{.host_memory_too = true};
  options.max_shared_bytes = shared_bytes;
  return CudaUnderTest(std::make_unique<emulator::EmulatedCudaDriver>(options));
}

// One token behind many, a whole prompt, and a piece of one behind more tokens than a split has.
std::vector<float> AttendToAllKinds(Backend& backend, const AttentionCase& c) {
  PagedSequences sequences(backend, c, {300, 40, 611}, kSeed);
  sequences.Append({{0, 0, 299}, {2, 0, 590}});
  return sequences.AppendAndAttend({{0, 299, 300}, {1, 0, 40}, {2, 590, 611}});
}

class SmallGpuCase : public testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, SmallGpuCase, testing::ValuesIn(CudaAttentionCases()));

TEST_P(SmallGpuCase, IsAttendedToOrRefusedByName) {
  const AttentionCase& c = GetParam();
  if (c.value_dim == 0) {
    const absl::Status fits = CheckCudaShared(c.format, c.head_dim, kSmallSharedBytes);
    const bool in_codes = KvElementBits(c.format) <= 8;
    EXPECT_EQ(fits.ok(), c.head_dim <= (in_codes ? 256 : 128)) << fits;
    if (!fits.ok()) return;
  }
  const CudaUnderTest cuda = SmallGpu();
  const std::unique_ptr<Device> host = NewHostDevice(0);
  EXPECT_LT(RelativeError(AttendToAllKinds(*cuda.backend, c),
                          AttendToAllKinds(*NewReferenceBackend(*host), c)),
            4e-3);
}

TEST(SmallGpu, AttendsToWideHeadsWithTheSharedMemoryOfAnA100) {
  for (const AttentionCase& c : CudaWideCases()) {
    SCOPED_TRACE(testing::Message() << c);
    EXPECT_TRUE(CheckCudaShared(c.format, c.head_dim, kA100SharedBytes).ok());
    const CudaUnderTest cuda = SmallGpu(kA100SharedBytes);
    const std::unique_ptr<Device> host = NewHostDevice(0);
    EXPECT_LT(RelativeError(AttendToAllKinds(*cuda.backend, c),
                            AttendToAllKinds(*NewReferenceBackend(*host), c)),
              4e-3);
  }
}

TEST(SmallGpu, AttendsToLatentsOfManyHeads) {
  AttentionCase c = CudaLatentCases().front();
  c.head_to_kv = AttentionCase::Groups(1, 40);
  const CudaUnderTest cuda = SmallGpu();
  const std::unique_ptr<Device> host = NewHostDevice(0);
  EXPECT_LT(RelativeError(AttendToAllKinds(*cuda.backend, c),
                          AttendToAllKinds(*NewReferenceBackend(*host), c)),
            4e-3);
}

}  // namespace
}  // namespace bulkhead
