// The plan is the run on a GPU, too: what is planned with no device is what an emulated one then
// gives, arena by arena and in all, to the byte.
#include <gtest/gtest.h>

#include <numeric>

#include "comm/staged/staged_communicator.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_sizes.h"
#include "kernels/cuda/gemm_library.h"
#include "memory/capacity.h"
#include "memory/cuda_device.h"
#include "runtime/model/family.h"
#include "runtime/model/model_runner.h"
#include "shard/model_config.h"
#include "shard/weight_loader.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

struct PlannedCase {
  const char* model;
  int size;
  std::optional<WeightFormat> at_load = std::nullopt;
  KvFormat kv_format = KvFormat::kBF16;
  int64_t gpu_bytes = 24 * kMiB;
  bool gemm_library = false;
};
// Nothing is computed here: a library is what takes memory.
class IdleLibrary final : public GemmLibrary {
 public:
  absl::Status Prepare(const GemmProblem&) override { return absl::NotFoundError("idle"); }
  bool IsPrepared(const GemmProblem&) const override { return false; }
  void Multiply(const GemmProblem&, const uint16_t*, const uint16_t*, float*, std::byte*) override {
  }
};
std::ostream& operator<<(std::ostream& out, const PlannedCase& c) {
  return out << c.model << ", tp " << c.size;
}

class CudaFootprint : public testing::TestWithParam<PlannedCase> {
 protected:
  void SetUp() override {
    const PlannedCase& c = GetParam();
    auto config = ReadModelConfig(std::string(BH_TEST_DATA) + "/" + c.model, UnknownFields::kWarn,
                                  AllFamilySpecs());
    ASSERT_TRUE(config.ok()) << config.status();
    limits_.weights = c.at_load.has_value()
                          ? WeightFormats::AtLoad(*c.at_load)
                          : WeightFormats::StoredBy(config->model, *config->model.dtype);
    limits_.activation = ActivationDType::kInt8;  // the default; means nothing to a GPU
    limits_.kv_format = c.kv_format;
    limits_.block_tokens = 16;
    limits_.caches_states = config->model.keeps_states();
    limits_.transport = c.size > 1 ? Transport::kStaged : Transport::kShared;
    auto split = ShardPlan::Create(config->model, c.size, std::max(limits_.weights.group_size, 1));
    ASSERT_TRUE(split.ok()) << split.status();
    split_ = std::make_unique<ShardPlan>(*std::move(split));
  }

  // With no device: every GPU has gpu_bytes, and KV what the other arenas leave.
  Capacity PlanWithNoDevice() {
    std::vector<DeviceBudget> budgets(split_->size());
    for (int rank = 0; rank < split_->size(); ++rank) {
      budgets[rank].rank = rank;
      budgets[rank].total_bytes = GetParam().gpu_bytes;
    }
    CapacityRequest request;
    request.start = {8, 256, 512, limits_.block_tokens};
    request.cap_at_max_num_seqs = false;
    const std::unique_ptr<BackendSizes> sizes = NewCudaSizes(GetParam().gemm_library);
    return PlanCapacity(budgets, request, [&](int rank, const Limits& fitted) {
      limits_.Limits::operator=(fitted);
      return FootprintOf(*split_, rank, limits_, *sizes);
    });
  }

  void AllocateArenas(Group& group, const RankCapacity& planned) {
    const int rank = group.exchange().topology().rank;
    emulator::EmulatedCudaDriver driver({.total_bytes = 2 * GetParam().gpu_bytes});
    const auto device = *CudaDevice::New(driver, GetParam().gpu_bytes);
    const std::unique_ptr<Backend> backend = NewCudaBackend(
        *device, driver, GetParam().gemm_library ? std::make_unique<IdleLibrary>() : nullptr);
    MemoryLedger ledger(*device);
    const RankNeeds needs = FootprintOf(*split_, rank, limits_, *backend);
    ClaimArenas(needs, limits_.num_kv_blocks, ledger);
    const CommLimits comm_limits = CommLimitsOf(*split_, limits_);
    auto comm = split_->size() > 1 ? ConnectStaged(group, comm_limits, *device, ledger)
                                   : group.Connect(comm_limits, ledger);
    ASSERT_TRUE(comm.ok()) << comm.status();
    auto arenas = TakeArenas(needs, limits_.num_kv_blocks, ledger);
    ASSERT_TRUE(arenas.ok()) << arenas.status();
    const ModelRunner runner(*split_, rank, limits_, *std::move(arenas), *backend, **comm);
    ledger.Seal();
    for (int i = 0; i < kNumMemoryCategories; ++i) {
      EXPECT_EQ(ledger.taken(static_cast<MemoryCategory>(i)), planned.arena_bytes[i])
          << MemoryCategoryName(static_cast<MemoryCategory>(i)) << " of rank " << rank;
    }
    EXPECT_EQ(device->allocated_bytes(),
              std::accumulate(planned.arena_bytes.begin(), planned.arena_bytes.end(), int64_t{0}));
  }

  ModelLimits limits_;
  std::unique_ptr<ShardPlan> split_;
};

TEST_P(CudaFootprint, PlannedWithNoDeviceIsWhatTheDeviceGives) {
  const Capacity plan = PlanWithNoDevice();
  ASSERT_TRUE(plan.fits);
  EXPECT_GT(plan.limits.num_kv_blocks, 0);
  limits_.num_kv_blocks = plan.limits.num_kv_blocks;
  RunRanks(split_->size(), [&](Group& group) {
    AllocateArenas(group, plan.ranks[group.exchange().topology().rank]);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Models, CudaFootprint,
    testing::Values(PlannedCase{"models/llama3_gqa_bf16", 1},
                    PlannedCase{"models/llama3_gqa_bf16", 2, WeightFormat::kInt4, KvFormat::kInt8},
                    PlannedCase{"models/qwen2_14h_bf16", 3, WeightFormat::kInt8, KvFormat::kInt4},
                    PlannedCase{"models/llama2_mha_f16", 2, std::nullopt, KvFormat::kF16},
                    PlannedCase{"models/llama3_gqa_bf16", 2, std::nullopt, KvFormat::kFP8},
                    PlannedCase{"models/mixtral_bf16", 1},
                    PlannedCase{"models/glm4_moe_bf16", 2, WeightFormat::kInt4},
                    PlannedCase{"models/qwen2_moe_bf16", 3},
                    PlannedCase{"models/deepseek_v3_bf16", 1},
                    PlannedCase{"models/deepseek_v3_bf16", 2, WeightFormat::kInt4, KvFormat::kFP8},
                    PlannedCase{"models/deepseek_v2_bf16", 3, std::nullopt, KvFormat::kF16},
                    PlannedCase{"models/qwen3_next_bf16", 2},
                    PlannedCase{"models/qwen3_5_bf16", 1, WeightFormat::kInt8},
                    PlannedCase{"models/gemma4_bf16", 2},
                    PlannedCase{"quantised/gptq_act_order", 1}, PlannedCase{"quantised/awq", 2},
                    PlannedCase{"quantised/ct_mxfp4", 2}, PlannedCase{"quantised/gpt_oss_mxfp4", 1},
                    PlannedCase{"models/llama3_gqa_bf16", 1, std::nullopt, KvFormat::kBF16,
                                64 * kMiB, true},
                    PlannedCase{"models/llama3_gqa_bf16", 2, WeightFormat::kInt4, KvFormat::kInt8,
                                128 * kMiB, true}));

}  // namespace
}  // namespace bulkhead
