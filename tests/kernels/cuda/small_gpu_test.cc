// What the CUDA backend does on GPUs with less shared memory than an A100 (sm_86, sm_89, sm_120).
#include <gtest/gtest.h>

#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/paged_step.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

constexpr int64_t kSmallSharedBytes = 99 << 10;
constexpr uint32_t kSeed = 20;

TEST(SmallGpu, AttendsToLatentsOfManyHeads) {
  AttentionCase c = CudaLatentCases().front();
  c.head_to_kv = AttentionCase::Groups(1, 40);
  const auto run = [&](Backend& backend) {
    PagedSequences sequences(backend, c, {300, 40}, kSeed);
    sequences.Append({{0, 0, 299}});
    return sequences.AppendAndAttend({{0, 299, 300}, {1, 0, 40}});
  };
  emulator::DeviceOptions options{.host_memory_too = true};
  options.max_shared_bytes = kSmallSharedBytes;
  CudaUnderTest cuda(std::make_unique<emulator::EmulatedCudaDriver>(options));
  const std::unique_ptr<Device> host = NewHostDevice(0);
  EXPECT_LT(RelativeError(run(*cuda.backend), run(*NewReferenceBackend(*host))), 4e-3);
}

}  // namespace
}  // namespace bulkhead
