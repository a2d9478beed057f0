// Whole small models in a group of two on emulated devices, whose sums are one-shot: the bits of
// staged sums, with norms in passes of their own. Gathers and broadcasts go through a library that
// answers as NCCL does.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>

#include "comm/nccl/nccl_communicator.h"
#include "comm/one_shot/one_shot_communicator.h"
#include "kernels/cuda/peer_sum.h"
#include "kernels/cuda/write_late.h"
#include "tests/comm/nccl/emulated_nccl.h"
#include "tests/runtime/model/emulated_rig.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"

namespace bulkhead {
namespace {

struct Counts {
  std::atomic<int> sums = 0;
  std::atomic<int> norms = 0;  // of sums, in one pass; not of the check
};

// Sooner than WriteLate.
void Write(CudaDriver& driver, float* out, int64_t count, int64_t first, int period, int offset) {
  Enqueue(driver, cuda::WriteLateKernel(),
          {.grid = {cuda::kWriteLateBlocks, 1, 1}, .block = {cuda::kWriteLateThreads, 1, 1}},
          cuda::WriteLateParameters{out, count, first, period, offset, /*turns=*/2});
}

absl::StatusOr<std::unique_ptr<Communicator>> Connect(Group& group, const CommLimits& limits,
                                                      Device& device, MemoryLedger& ledger,
                                                      Counts& counts) {
  Controls();
  auto& driver = static_cast<emulator::EmulatedCudaDriver&>(*device.cuda_driver());
  rank_driver = &driver;
  OneShotOptions options;
  options.check_rounds = 3;
  options.check_limit = absl::Minutes(5);  // a rank that stands still misses no sum
  options.write_late = [&driver](float* out, int64_t count, int64_t first, int period, int offset) {
    Write(driver, out, count, first, period, offset);
  };
  options.sum = [&](const PeerSums& sums, float* x, int64_t count) {
    ++counts.sums;
    PeerSum(driver, sums, x, count);
  };
  options.sum_norm = [&](const PeerSums& sums, ConstMatrixView partial, const ResidualNorm& norm) {
    if (sums.limit_ns == 0) ++counts.norms;
    PeerSumNorm(driver, sums, partial, norm);
  };
  auto nccl = ConnectNccl(group, limits, driver, ledger, absl::Minutes(5),
                          {.write_late = options.write_late});
  if (!nccl.ok()) return nccl.status();
  return ConnectOneShot(group, limits, driver, driver, ledger, absl::Minutes(5), std::move(options),
                        *std::move(nccl));
}

RigOptions Options(Counts& counts) {
  RigOptions options;
  options.size = 2;
  options.kv_format = KvFormat::kBF16;
  options.decode_tokens = 3;
  options.decode_logits = true;
  options.transport = Transport::kNccl;
  options.connect = [&counts](Group& group, const CommLimits& limits, Device& device,
                              MemoryLedger& ledger) {
    return Connect(group, limits, device, ledger, counts);
  };
  // At once: a rank's queue runs while the other's host goes on.
  options.make_device = [] {
    return EmulatedDevice(emulator::Schedule::kAscending, false, nullptr, kPeerBlocks + 1);
  };
  return options;
}

class CudaOneShotOf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, CudaOneShotOf,
                         testing::Values("llama3_gqa_bf16", "qwen2_14h_bf16", "gemma2_bf16",
                                         "qwen3_moe_bf16", "gemma4_bf16", "gemma4_moe_bf16",
                                         "minimax_m2_bf16", "cohere_bf16"));

TEST_P(CudaOneShotOf, HasTheBitsOfStagedSums) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/" + GetParam();
  const std::vector<std::vector<int32_t>> prompts = {ReadGolden(dir).prompts[2]};
  Counts counts;
  RigOptions options = Options(counts);
  const RigResult one_shot = RunRig(dir, prompts, options);
  EXPECT_GT(counts.sums, 8);
  // Cohere's norm is another; Gemma 4's are of sums, and its embedding has more added to it.
  const bool without = std::set<std::string>{"cohere_bf16", "gemma4_bf16"}.contains(GetParam());
  EXPECT_EQ(counts.norms == 0, without);
  options.transport = Transport::kStaged;
  options.connect = &ConnectStaged;
  const RigResult staged = RunRig(dir, prompts, options);
  EXPECT_TRUE(one_shot.logits == staged.logits);
  EXPECT_EQ(one_shot.greedy_ids, staged.greedy_ids);
}

TEST(CudaOneShot, GraphsHaveTheBitsOfStepsWithoutThem) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16";
  std::vector<std::vector<int32_t>> prompts(3, ReadGolden(dir).prompts[2]);
  for (int i = 0; i < 3; ++i) prompts[i].resize(9 - i);
  Counts counts;
  RigOptions options = Options(counts);
  const RigResult without = RunRig(dir, prompts, options);
  options.decode_graphs = true;
  options.pads_decodes = true;
  const RigResult with = RunRig(dir, prompts, options);
  EXPECT_TRUE(with.logits == without.logits);
  EXPECT_EQ(with.greedy_ids, without.greedy_ids);
}

}  // namespace
}  // namespace bulkhead
