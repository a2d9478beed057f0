// A whole small model in groups of emulated devices whose sums go by a library that answers as NCCL
// does, in bf16: logits near those of sums in f32, and the same bits in graphs.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "comm/nccl/nccl_communicator.h"
#include "comm/one_shot/one_shot_communicator.h"
#include "kernels/cuda/round_sum.h"
#include "kernels/cuda/write_late.h"
#include "tests/comm/nccl/emulated_nccl.h"
#include "tests/runtime/model/emulated_rig.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"

namespace bulkhead {
namespace {

// Without one-shot sums, so that NCCL has all.
absl::StatusOr<std::unique_ptr<Communicator>> Connect(Group& group, const CommLimits& limits,
                                                      Device& device, MemoryLedger& ledger) {
  Controls();
  auto& driver = static_cast<emulator::EmulatedCudaDriver&>(*device.cuda_driver());
  rank_driver = &driver;
  NcclKernels kernels;
  kernels.write_late = [&driver](float* out, int64_t count, int64_t first, int period, int offset) {
    Enqueue(driver, cuda::WriteLateKernel(),  // sooner than WriteLate
            {.grid = {cuda::kWriteLateBlocks, 1, 1}, .block = {cuda::kWriteLateThreads, 1, 1}},
            cuda::WriteLateParameters{out, count, first, period, offset, /*turns=*/2});
  };
  kernels.round = [&driver](const float* from, uint16_t* to, int64_t count) {
    RoundSum(driver, from, to, count);
  };
  kernels.widen = [&driver](const uint16_t* from, float* to, int64_t count) {
    WidenSum(driver, from, to, count);
  };
  auto nccl = ConnectNccl(group, limits, driver, ledger, absl::Minutes(5), std::move(kernels));
  if (!nccl.ok()) return nccl.status();
  OneShotOptions options;
  options.wanted = absl::UnavailableError("sums are NCCL's");
  return ConnectOneShot(group, limits, driver, driver, ledger, absl::Minutes(5), std::move(options),
                        *std::move(nccl));
}

RigOptions Options(int size, DType sum_dtype) {
  RigOptions options;
  options.size = size;
  options.sum_dtype = sum_dtype;
  options.kv_format = KvFormat::kBF16;
  options.decode_tokens = 3;
  options.decode_logits = true;
  options.transport = Transport::kNccl;
  options.connect = &Connect;
  options.make_device = [] { return EmulatedDevice(emulator::Schedule::kAscending, true); };
  return options;
}

std::string Dir() { return std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16"; }

TEST(CudaRoundedSums, AreNearTheOnesInF32) {
  const std::vector<std::vector<int32_t>> prompts = {ReadGolden(Dir()).prompts[2]};
  for (const int size : {2, 4}) {
    const RigResult in_f32 = RunRig(Dir(), prompts, Options(size, DType::kF32));
    const RigResult rounded = RunRig(Dir(), prompts, Options(size, DType::kBF16));
    const double error = RelativeError(rounded.logits[0], in_f32.logits[0]);
    EXPECT_LT(error, 2e-2) << size << " ranks";
    EXPECT_GT(error, 1e-5) << size << " ranks";
  }
}

TEST(CudaRoundedSums, HaveTheSameBitsInGraphs) {
  std::vector<std::vector<int32_t>> prompts(3, ReadGolden(Dir()).prompts[2]);
  for (int i = 0; i < 3; ++i) prompts[i].resize(9 - i);
  RigOptions options = Options(2, DType::kBF16);
  const RigResult without = RunRig(Dir(), prompts, options);
  options.decode_graphs = true;
  options.pads_decodes = true;
  const RigResult with = RunRig(Dir(), prompts, options);
  EXPECT_TRUE(with.logits == without.logits);
  EXPECT_EQ(with.greedy_ids, without.greedy_ids);
}

}  // namespace
}  // namespace bulkhead
