// The planner against published cases, and its claim: what tensor parallelism does not divide is
// refused at every number of ranks, and no remedy says otherwise.
#include "launcher/planning/model_capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/exit_code.h"
#include "kernels/cuda/cuda_sizes.h"
#include "launcher/planning/changed_plan.h"
#include "launcher/planning/remedies.h"
#include "memory/device.h"
#include "memory/kv_format_name.h"
#include "shard/shard_plan.h"
#include "tests/support/family_named.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

struct Shape {
  int layers, width, mlp, heads, kv_heads, head_dim, vocab;
  bool tied = false;
  bool qkv_bias = false;
};
constexpr Shape kLlama2_7B = {32, 4096, 11008, 32, 32, 128, 32000};
constexpr Shape kLlama2_13B = {40, 5120, 13824, 40, 40, 128, 32000};
constexpr Shape kLlama3_8B = {32, 4096, 14336, 32, 8, 128, 128256};
constexpr Shape kLlama3_70B = {80, 8192, 28672, 64, 8, 128, 128256};
constexpr Shape kQwen2_5_32B = {64, 5120, 27648, 40, 8, 128, 152064, false, true};

ModelConfig ConfigOf(const Shape& shape) {
  ModelConfig config;
  config.family = FamilyNamed("llama");
  config.architecture = "LlamaForCausalLM";
  config.hidden_size = shape.width;
  config.intermediate_size = shape.mlp;
  config.num_hidden_layers = shape.layers;
  config.num_attention_heads = shape.heads;
  config.num_key_value_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.vocab_size = shape.vocab;
  config.max_position_embeddings = 131072;
  config.tie_word_embeddings = shape.tied;
  config.qkv_bias = shape.qkv_bias;
  config.layer_uses_window.assign(shape.layers, false);
  return config;
}

class ModelCapacityTest : public testing::Test {
 protected:
  Capacity Plan(const Shape& shape, int size, int64_t cap_bytes) {
    config_ = ConfigOf(shape);
    std::vector<DeviceBudget> budgets(size);
    for (int rank = 0; rank < size; ++rank) {
      budgets[rank].rank = rank;
      budgets[rank].device = "cpu";
      budgets[rank].total_bytes = cap_bytes;
    }
    const auto plan = Model().Plan(budgets);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.value_or(Capacity());
  }
  ModelCapacity Model() { return {config_, formats_, options_, *backend_}; }

  // As if the options had been given on the command line.
  Remedies RemediesFor(const Capacity& refused, DeviceKind kind = DeviceKind::kCpu) {
    std::vector<std::string>& args = options_.command_line;
    args = {"serve", "--model", "m", "--kv-cache-dtype",
            std::string(KvFormatName(formats_.kv_format))};
    const auto add = [&](const char* flag, std::optional<int> value) {
      if (value.has_value()) args.insert(args.end(), {flag, std::to_string(*value)});
    };
    add("--max-num-seqs", options_.limits.max_num_seqs);
    add("--max-model-len", options_.limits.max_model_len);
    add("--max-num-batched-tokens", options_.limits.max_num_batched_tokens);
    std::vector<DeviceBudget> budgets;
    std::string caps;
    for (const RankCapacity& rank : refused.ranks) {
      caps += (caps.empty() ? "" : ",") + std::to_string(rank.budget.rank) + "=" +
              std::to_string(rank.budget.total_bytes);
      budgets.push_back(rank.budget);
    }
    if (options_.device_memory.has_value()) args.insert(args.end(), {"--device-memory", caps});
    ModelSource source;
    source.config.model = config_;
    source.config.model.dtype = DType::kBF16;
    const auto changed = [&](const EngineOptions& other) { return ChangedBudgets(other, budgets); };
    return FindRemedies(
        options_, formats_, {refused, std::nullopt},
        PlanAgainOn(
            source, *sizes_, kind, [](const Command&, int) { return Clients(); }, changed));
  }

  ModelConfig config_;
  EngineOptions options_;
  ModelLimits formats_ = {{.block_tokens = 16},
                          WeightFormats::Of(DType::kBF16),
                          ActivationDType::kF32,
                          KvFormat::kBF16};
  std::unique_ptr<Device> device_ = NewHostDevice(0);
  std::unique_ptr<Backend> backend_ = NewCpuBackend(*device_, {}).value();
  const BackendSizes* sizes_ = backend_.get();
};

TEST_F(ModelCapacityTest, WeightsAreThoseOfThePublishedModels) {
  EXPECT_EQ(Plan(kLlama2_7B, 1, 1000 * kGiB).ranks[0].stored_weight_bytes, 13'476'831'232);
  EXPECT_EQ(Plan(kLlama2_13B, 1, 1000 * kGiB).ranks[0].stored_weight_bytes, 26'031'728'640);
}

// What latent attention caches of a token, 576 numbers a layer, is on every rank, however many
// there are.
TEST_F(ModelCapacityTest, MoreRanksDoNotShrinkALatentCache) {
  config_ = ConfigOf(kLlama3_8B);
  config_.family = FamilyNamed("deepseek_v2");
  config_.num_key_value_heads = 1;
  config_.head_dim = 64;
  config_.latent = {.kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  for (const int size : {1, 2, 8, 16}) {
    const auto plan =
        Model().Plan(std::vector<DeviceBudget>(size, DeviceBudget{.total_bytes = 100 * kGiB}));
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (const RankCapacity& rank : plan->ranks) {
      EXPECT_EQ(rank.kv_block_bytes, 16 * 32 * 576 * 2) << size;
    }
    EXPECT_EQ(Model().KvHeadCopies(size), size);
  }
}

TEST_F(ModelCapacityTest, PlansOfOneModelDoNotDependOnThoseBefore) {
  config_ = ConfigOf(kLlama3_8B);
  const ModelCapacity model(config_, formats_, options_, *backend_);
  const auto weights_at = [](const ModelCapacity& at, int size) {
    const std::vector<DeviceBudget> budgets(size, DeviceBudget{.total_bytes = 1000 * kGiB});
    return at.Plan(budgets)->ranks.back().stored_weight_bytes;
  };
  for (const int size : {1, 8, 8, 2, 1})
    EXPECT_EQ(weights_at(model, size), weights_at(Model(), size));
}

TEST_F(ModelCapacityTest, WeightsPerRankAreThePublishedColumnsWithinOnePercent) {
  struct Column {
    Shape shape;
    int size;
    double gib;
  };
  const Column columns[] = {
      {kLlama3_8B, 1, 14.96},   {kLlama3_8B, 2, 7.48},    {kLlama3_8B, 4, 3.74},
      {kLlama3_8B, 8, 1.87},    {kLlama3_8B, 16, 0.97},   {kLlama3_70B, 1, 131.42},
      {kLlama3_70B, 2, 65.71},  {kLlama3_70B, 4, 32.86},  {kLlama3_70B, 8, 16.43},
      {kLlama3_70B, 16, 8.37},  {kQwen2_5_32B, 1, 61.03}, {kQwen2_5_32B, 2, 30.51},
      {kQwen2_5_32B, 4, 15.26}, {kQwen2_5_32B, 8, 7.63},
  };
  for (const Column& column : columns) {
    const Capacity plan = Plan(column.shape, column.size, 1000 * kGiB);
    for (const RankCapacity& rank : plan.ranks) {
      const double gib = static_cast<double>(rank.stored_weight_bytes) / kGiB;
      EXPECT_NEAR(gib / column.gib, 1, 0.01) << column.shape.width << " tp " << column.size;
      // Packing rounds rows up to whole panels, and adds little.
      const auto arena =
          static_cast<double>(rank.arena_bytes[static_cast<int>(MemoryCategory::kWeights)]);
      EXPECT_NEAR(arena / static_cast<double>(rank.stored_weight_bytes), 1, 0.01);
    }
  }
}

TEST_F(ModelCapacityTest, KvPerTokenStopsShrinkingAtTheKvHeads) {
  const auto kib_per_token = [&](const Shape& shape, int size) {
    return Plan(shape, size, 1000 * kGiB).ranks[0].kv_block_bytes / 16 / 1024;
  };
  const int64_t llama8[] = {128, 64, 32, 16, 16};
  const int64_t llama70[] = {320, 160, 80, 40, 40};
  const int64_t qwen32[] = {256, 128, 64, 32, 32};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(kib_per_token(kLlama3_8B, 1 << i), llama8[i]);
    EXPECT_EQ(kib_per_token(kLlama3_70B, 1 << i), llama70[i]);
    EXPECT_EQ(kib_per_token(kQwen2_5_32B, 1 << i), qwen32[i]);  // 16 ranks and 40 heads are fine
  }
}

TEST_F(ModelCapacityTest, BlocksAreThoseOfThePublishedCases) {
  formats_ = {
      {.block_tokens = 64}, WeightFormats::Of(DType::kF16), ActivationDType::kF32, KvFormat::kF16};
  const RankCapacity alone = Plan(kLlama2_7B, 1, 1000 * kGiB).ranks[0];
  EXPECT_EQ(alone.kv_block_bytes, 33'554'432);
  EXPECT_EQ(Plan(kLlama2_7B, 2, 1000 * kGiB).ranks[1].kv_block_bytes, 33'554'432 / 2);
  // 66 GiB are free after the weights.
  const int64_t cap = 66 * kGiB + alone.arena_bytes[static_cast<int>(MemoryCategory::kWeights)];
  options_.limits.max_model_len = 4096;
  for (const auto& [share, blocks] : {std::pair(0.8, 1689), std::pair(0.2, 422)}) {
    options_.kv_rule = {.kind = KvRule::Kind::kShareOfFree, .fraction = share};
    EXPECT_EQ(Plan(kLlama2_7B, 1, cap).limits.num_kv_blocks, blocks);
  }
}

TEST_F(ModelCapacityTest, SequencesTakeThePublishedBytes) {
  const auto kv_bytes = [&](int size, int seqs, int len) {
    options_.limits.max_num_seqs = seqs;
    options_.limits.max_model_len = len;
    const Capacity plan = Plan(kQwen2_5_32B, size, 1000 * kGiB);
    return plan.ranks[0].arena_bytes[static_cast<int>(MemoryCategory::kKv)];
  };
  EXPECT_EQ(kv_bytes(4, 16, 4096), 4 * kGiB);
  EXPECT_EQ(kv_bytes(1, 128, 8192), 256 * kGiB);
}

// Memory that a cap cannot hold at any number of ranks.
struct Undivided {
  const char* name;
  Shape shape;
  MemoryCategory category;
  int max_num_seqs, max_model_len, max_num_batched_tokens;
  int64_t cap_bytes;
  int rank;  // -1: any
};

class Thesis : public ModelCapacityTest, public testing::WithParamInterface<Undivided> {};

TEST_P(Thesis, WhatRanksDoNotDivideIsRefusedAtEveryNumberOfThem) {
  const Undivided& undivided = GetParam();
  options_.limits.max_num_seqs = undivided.max_num_seqs;
  options_.limits.max_model_len = undivided.max_model_len;
  options_.limits.max_num_batched_tokens = undivided.max_num_batched_tokens;
  for (const int size : {1, 2, 4, 8}) {
    const Capacity plan = Plan(undivided.shape, size, undivided.cap_bytes);
    ASSERT_TRUE(plan.shortage.has_value()) << size;
    EXPECT_EQ(plan.shortage->category, undivided.category)
        << MemoryCategoryName(plan.shortage->category) << " " << size;
    if (undivided.rank >= 0) {
      EXPECT_EQ(plan.shortage->rank, undivided.rank) << size;
    }
    const Remedies remedies = RemediesFor(plan);
    for (const Remedy& remedy : remedies.list) {
      EXPECT_NE(remedy.flags[0], "--tensor-parallel-size") << size;
    }
    if (remedies.list.empty()) {
      EXPECT_THAT(remedies.none_because, HasSubstr("no number of ranks"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Terms, Thesis,
    testing::Values(
        // One KV head, on every rank.
        Undivided{
            "kv", {4, 64, 64, 8, 1, 64, 512}, MemoryCategory::kKv, 1, 65536, 64, 60 * kMiB, -1},
        // [T, D] rows of the residual stream.
        Undivided{"activations",
                  {1, 2048, 64, 8, 8, 16, 512},
                  MemoryCategory::kActivations,
                  1,
                  64,
                  16384,
                  410 * kMiB,
                  -1},
        Undivided{"block_tables",
                  {1, 64, 64, 8, 8, 16, 512},
                  MemoryCategory::kBlockTables,
                  4096,
                  131072,
                  64,
                  40 * kMiB,
                  -1},
        // A tile of whole rows of the vocabulary on rank 0.
        Undivided{"logits",
                  {1, 16, 64, 8, 8, 2, 1 << 22, true},
                  MemoryCategory::kLogits,
                  1,
                  64,
                  64,
                  600 * kMiB,
                  0}),
    [](const auto& param) { return param.param.name; });

class GpuCapacityTest : public ModelCapacityTest {
 protected:
  static std::vector<DeviceBudget> Gpus(int size, int64_t total_bytes) {
    std::vector<DeviceBudget> budgets(size);
    for (int rank = 0; rank < size; ++rank) {
      budgets[rank].rank = rank;
      budgets[rank].device = "h100";
      budgets[rank].total_bytes = total_bytes;
      budgets[rank].probed = true;
    }
    return budgets;
  }
  ModelCapacity GpuModel() { return {config_, formats_, options_, *gpu_, DeviceKind::kGpu}; }
  void SetUp() override { sizes_ = gpu_.get(); }

  std::unique_ptr<BackendSizes> gpu_ = NewCudaSizes(false);
};

TEST_F(GpuCapacityTest, SumsGoByNcclUnlessTheFlagsSayStagedOrThereIsOneRank) {
  config_ = ConfigOf(kLlama3_8B);
  const auto bytes = [&](int size, CommOption comm) {
    options_.comm = comm;
    const auto plan = GpuModel().Plan(Gpus(size, 80 * kGiB));
    EXPECT_TRUE(plan.ok() && plan->fits) << plan.status();
    EXPECT_EQ(plan->limits.max_num_batched_tokens, 8192);
    return plan->ranks[0].arena_bytes[static_cast<int>(MemoryCategory::kCommunication)];
  };
  EXPECT_EQ(bytes(2, CommOption::kStaged), int64_t{8192} * 4096 * 4);
  EXPECT_GT(bytes(2, CommOption::kAuto), int64_t{8192} * 4096 * 4);
  EXPECT_EQ(bytes(2, CommOption::kAuto), bytes(2, CommOption::kNccl));
  EXPECT_EQ(bytes(1, CommOption::kAuto), bytes(1, CommOption::kStaged));
}

TEST_F(GpuCapacityTest, MoreGpusAreARemedyWhereTheyWereMeasured) {
  config_ = ConfigOf(kLlama3_8B);
  std::vector<DeviceBudget> budgets = Gpus(1, 12 * kGiB);
  const auto refused = GpuModel().Plan(budgets);
  ASSERT_TRUE(refused.ok() && refused->shortage.has_value());
  const auto names_ranks = [](const Remedies& remedies) {
    return std::any_of(remedies.list.begin(), remedies.list.end(), [](const Remedy& remedy) {
      return remedy.flags[0] == "--tensor-parallel-size";
    });
  };
  EXPECT_TRUE(names_ranks(RemediesFor(*refused, DeviceKind::kGpu)));
  budgets[0].device = "cpu";  // whose ranks share the host's memory
  const auto on_cpu = Model().Plan(budgets);
  ASSERT_TRUE(on_cpu.ok() && on_cpu->shortage.has_value());
  EXPECT_FALSE(names_ranks(RemediesFor(*on_cpu)));
}

TEST_F(ModelCapacityTest, NoRankIsEverAboveItsCap) {
  options_.limits.max_model_len = 2048;
  options_.limits.max_num_batched_tokens = 256;
  for (const int64_t cap : {100 * kMiB, 200 * kMiB, kGiB}) {
    for (int size = 1; size <= 8; ++size) {
      const Capacity plan = Plan({4, 512, 1024, 8, 2, 64, 4000}, size, cap);
      for (const RankCapacity& rank : plan.ranks) {
        int64_t sum = 0;
        for (const int64_t bytes : rank.arena_bytes) sum += bytes;
        EXPECT_LE(plan.fits ? sum : 0, cap) << size;
      }
    }
  }
}

TEST_F(ModelCapacityTest, SharesKeepMoreOfThePoolOnUnequalDevices) {
  // KV dominates: 8 KV heads over 2 ranks.
  config_ = ConfigOf({8, 256, 256, 8, 8, 64, 1000});
  options_.limits.max_model_len = 4096;
  options_.limits.max_num_seqs = 10000;
  options_.limits.max_num_batched_tokens = 64;
  const auto tokens = [&](int64_t second_bytes) {
    std::vector<DeviceBudget> budgets(2);
    budgets[0].total_bytes = 6 * kGiB;
    budgets[1].rank = 1;
    budgets[1].total_bytes = second_bytes;
    const auto plan = Model().Plan(budgets);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return static_cast<double>(plan->limits.num_kv_blocks);
  };
  const double equal_ranks = tokens(6 * kGiB);
  EXPECT_NEAR(tokens(4 * kGiB) / equal_ranks, 0.67, 0.02);
  options_.tp_shares_auto = true;
  EXPECT_NEAR(tokens(4 * kGiB) / equal_ranks, 0.80, 0.02);
  EXPECT_NEAR(tokens(6 * kGiB) / equal_ranks, 1, 0.01);
  options_.tp_shares_auto = false;
  options_.tp_shares = {5, 3};
  EXPECT_NEAR(tokens(4 * kGiB) / equal_ranks, 0.80, 0.02);
  options_.tp_shares = {5, 3, 1};
  std::vector<DeviceBudget> budgets(2);
  EXPECT_EQ(ExitCodeOf(Model().Plan(budgets).status()), ExitCode::kUsage);
}

TEST_F(ModelCapacityTest, ALargerGroupOfUnequalCapsListsThemAll) {
  RankSizes caps;
  caps.of_rank = {{0, 70 * kMiB}, {1, 60 * kMiB}};
  options_.device_memory = caps;
  options_.limits.max_model_len = 128;
  config_ = ConfigOf({8, 512, 2048, 8, 8, 64, 8000});
  std::vector<DeviceBudget> budgets(2);
  for (int rank = 0; rank < 2; ++rank) {
    budgets[rank].rank = rank;
    budgets[rank].total_bytes = caps.of_rank[rank];
  }
  const auto refused = Model().Plan(budgets);
  ASSERT_TRUE(refused.ok()) << refused.status();
  ASSERT_FALSE(refused->fits);
  const Remedies remedies = RemediesFor(*refused);
  ASSERT_THAT(remedies.list, testing::Not(IsEmpty()));
  const std::vector<std::string>& flags = remedies.list.back().flags;
  ASSERT_EQ(flags[0], "--tensor-parallel-size");
  ASSERT_EQ(flags[2], "--device-memory");
  EXPECT_THAT(flags[3], HasSubstr("0=73400320,1=62914560,2=62914560"));
}

}  // namespace
}  // namespace bulkhead
