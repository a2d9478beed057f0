// The plan is the run on a GPU, too: what is planned with no device is what an emulated one then
// gives, arena by arena and in all, to the byte.
#include <gtest/gtest.h>

#include <numeric>
#include <optional>

#include "comm/staged/staged_communicator.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_sizes.h"
#include "kernels/cuda/gemm_library.h"
#include "memory/capacity.h"
#include "memory/cuda_device.h"
#include "runtime/engine/drafts.h"
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
  int max_drafts = 0;
  const char* draft = nullptr;  // a draft model's folder
};
// Nothing is computed here: a library is what takes memory.
class IdleLibrary final : public GemmLibrary {
 public:
  absl::Status Prepare(const GemmProblem&) override { return absl::NotFoundError("idle"); }
  bool IsPrepared(const GemmProblem&) const override { return false; }
  absl::Status CheckFp8() const override { return absl::UnimplementedError("idle"); }
  void Multiply(const GemmProblem&, const GemmOperands&, void*, std::byte*) override {}
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
    limits_.max_drafts = limits_.max_rejected = c.max_drafts;
    auto split = ShardPlan::Create(config->model, c.size, std::max(limits_.weights.group_size, 1));
    ASSERT_TRUE(split.ok()) << split.status();
    split_ = std::make_unique<ShardPlan>(*std::move(split));
    if (c.draft == nullptr) return;
    auto draft = ReadModelConfig(std::string(BH_TEST_DATA) + "/" + c.draft, UnknownFields::kWarn,
                                 AllFamilySpecs());
    ASSERT_TRUE(draft.ok()) << draft.status();
    draft_weights_ = WeightFormats::StoredBy(draft->model, *draft->model.dtype);
    draft_split_ = std::make_unique<ShardPlan>(*ShardPlan::Create(draft->model, c.size));
  }

  ModelLimits DraftLimits() const {
    ModelLimits own = limits_;
    own.weights = draft_weights_;
    own.max_drafts = 0;
    own.caches_states = false;
    own.max_num_batched_tokens = DraftStepTokens(limits_);
    return own;
  }

  CommLimits SumLimits() const {
    const CommLimits own = CommLimitsOf(*split_, limits_);
    if (draft_split_ == nullptr) return own;
    return Larger(own, CommLimitsOf(*draft_split_, DraftLimits()));
  }

  RankNeeds NeedsOf(int rank, const BackendSizes& sizes) const {
    RankNeeds needs = FootprintOf(*split_, rank, limits_, sizes);
    if (draft_split_ == nullptr) return needs;
    return WithDraftModel(std::move(needs), FootprintOf(*draft_split_, rank, DraftLimits(), sizes),
                          SumLimits(), rank, split_->size());
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
      return NeedsOf(rank, *sizes);
    });
  }

  void AllocateArenas(Group& group, const RankCapacity& planned) {
    const int rank = group.exchange().topology().rank;
    emulator::EmulatedCudaDriver driver({.total_bytes = 2 * GetParam().gpu_bytes});
    const auto device = *CudaDevice::New(driver, GetParam().gpu_bytes);
    const std::unique_ptr<Backend> backend = NewCudaBackend(
        *device, driver, GetParam().gemm_library ? std::make_unique<IdleLibrary>() : nullptr);
    MemoryLedger ledger(*device);
    const int64_t blocks = limits_.num_kv_blocks;
    ClaimArenas(NeedsOf(rank, *backend), blocks, ledger);
    auto comm = split_->size() > 1 ? ConnectStaged(group, SumLimits(), *device, ledger)
                                   : group.Connect(SumLimits(), ledger);
    ASSERT_TRUE(comm.ok()) << comm.status();
    const RankNeeds needs = FootprintOf(*split_, rank, limits_, *backend);
    std::optional<ModelRunner> runner, draft;
    if (draft_split_ == nullptr) {
      auto arenas = TakeArenas(needs, blocks, ledger);
      ASSERT_TRUE(arenas.ok()) << arenas.status();
      runner.emplace(*split_, rank, limits_, *std::move(arenas), *backend, **comm);
    } else {
      const RankNeeds of_draft = FootprintOf(*draft_split_, rank, DraftLimits(), *backend);
      auto both = TakeArenas(needs, of_draft, blocks, ledger);
      ASSERT_TRUE(both.ok()) << both.status();
      runner.emplace(*split_, rank, limits_, std::move(both->model), *backend, **comm);
      draft.emplace(*draft_split_, rank, DraftLimits(), std::move(both->draft), *backend, **comm);
    }
    ledger.Seal();
    for (int i = 0; i < kNumMemoryCategories; ++i) {
      EXPECT_EQ(ledger.taken(static_cast<MemoryCategory>(i)), planned.arena_bytes[i])
          << MemoryCategoryName(static_cast<MemoryCategory>(i)) << " of rank " << rank;
    }
    const int64_t shared = split_->size() > 1 ? StagedSharedBytes(SumLimits(), split_->size()) : 0;
    const int64_t taken = driver.pinned_bytes() + shared;
    if (draft_split_ == nullptr) {
      EXPECT_EQ(planned.host_bytes, taken);
    } else {  // lists of the larger model are counted with those of the smaller
      EXPECT_GE(planned.host_bytes, taken);
      EXPECT_LT(planned.host_bytes, taken + 64 * 1024);
    }
    EXPECT_EQ(device->allocated_bytes(),
              std::accumulate(planned.arena_bytes.begin(), planned.arena_bytes.end(), int64_t{0}));
  }

  ModelLimits limits_;
  std::unique_ptr<ShardPlan> split_;
  WeightFormats draft_weights_;
  std::unique_ptr<ShardPlan> draft_split_;  // null: no draft model
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

TEST(LoadingFootprint, WeightsInCodesTakeHostMemoryUntilTheyAreComplete) {
  const auto config = ReadModelConfig(std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16",
                                      UnknownFields::kWarn, AllFamilySpecs());
  ASSERT_TRUE(config.ok()) << config.status();
  ModelConfig wide = config->model;
  const std::unique_ptr<BackendSizes> sizes = NewCudaSizes(false);
  const auto needs = [&](const WeightFormats& formats) {
    const auto split = ShardPlan::Create(wide, 1, 128);
    return WeightNeedsOf(split->rank(0), formats, *sizes);
  };
  const WeightFormats int4 = WeightFormats::AtLoad(WeightFormat::kInt4);
  EXPECT_EQ(needs(WeightFormats::Of(DType::kBF16)).OpenBytes(8), 0);
  // Of a small model all that it has: a byte a number, and the weight itself.
  const WeightNeeds small = needs(int4);
  EXPECT_GT(small.OpenBytes(1000), small.arena_bytes);
  EXPECT_LT(small.OpenBytes(1000), 8 * small.arena_bytes);
  // Of a large one as many as threads read, but not more than two beyond the limit.
  wide.hidden_size = 8192;
  wide.intermediate_size = int64_t{1} << 17;
  const int64_t gate_up = int64_t{2} * wide.intermediate_size * wide.hidden_size;
  const WeightNeeds large = needs(int4);
  EXPECT_GT(large.largest_host_bytes, gate_up + gate_up / 2);
  EXPECT_LT(large.largest_host_bytes, 2 * gate_up);
  EXPECT_EQ(large.OpenBytes(8), 2 * large.largest_host_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Models, CudaFootprint,
    testing::Values(
        PlannedCase{"models/llama3_gqa_bf16", 1},
        PlannedCase{"models/llama3_gqa_bf16", 2, WeightFormat::kInt4, KvFormat::kInt8},
        PlannedCase{"models/qwen2_14h_bf16", 3, WeightFormat::kInt8, KvFormat::kInt4},
        PlannedCase{"models/llama2_mha_f16", 2, std::nullopt, KvFormat::kF16},
        PlannedCase{"models/llama3_gqa_bf16", 2, std::nullopt, KvFormat::kFP8},
        PlannedCase{.model = "models/llama3_gqa_bf16", .size = 1, .max_drafts = 16},
        PlannedCase{.model = "models/qwen2_14h_bf16", .size = 3, .max_drafts = 5},
        PlannedCase{.model = "models/llama3_gqa_bf16",
                    .size = 1,
                    .max_drafts = 3,
                    .draft = "models/qwen2_14h_bf16"},
        PlannedCase{.model = "models/llama3_gqa_bf16",
                    .size = 2,
                    .max_drafts = 3,
                    .draft = "models/qwen3_next_bf16"},
        PlannedCase{.model = "models/glm4_moe_bf16",
                    .size = 2,
                    .kv_format = KvFormat::kInt8,
                    .max_drafts = 4,
                    .draft = "models/llama3_gqa_bf16"},
        PlannedCase{"models/mixtral_bf16", 1},
        PlannedCase{"models/glm4_moe_bf16", 2, WeightFormat::kInt4},
        PlannedCase{"models/qwen2_moe_bf16", 3}, PlannedCase{"models/deepseek_v3_bf16", 1},
        PlannedCase{"models/deepseek_v3_bf16", 2, WeightFormat::kInt4, KvFormat::kFP8},
        PlannedCase{"models/deepseek_v2_bf16", 3, std::nullopt, KvFormat::kF16},
        PlannedCase{"models/qwen3_next_bf16", 2},
        PlannedCase{"models/qwen3_5_bf16", 1, WeightFormat::kInt8},
        PlannedCase{"models/gemma4_bf16", 2}, PlannedCase{"quantised/gptq_act_order", 1},
        PlannedCase{"quantised/awq", 2}, PlannedCase{"quantised/ct_mxfp4", 2},
        PlannedCase{"quantised/ct_nvfp4", 2}, PlannedCase{"quantised/ct_int4_g32_asym", 1},
        PlannedCase{"quantised/gpt_oss_mxfp4", 1},
        PlannedCase{"models/llama3_gqa_bf16", 1, std::nullopt, KvFormat::kBF16, 64 * kMiB, true},
        PlannedCase{"models/llama3_gqa_bf16", 2, WeightFormat::kInt4, KvFormat::kInt8, 128 * kMiB,
                    true}));

}  // namespace
}  // namespace bulkhead
