#include "runtime/model/footprint.h"

#include <cmath>
#include <memory>

#include "base/exit_code.h"
#include "comm/local/local_group.h"
#include "gtest/gtest.h"
#include "runtime/model/model_runner.h"
#include "runtime/model/rope_table.h"
#include "shard/model_config.h"
#include "tests/support/family_named.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

ModelConfig Config() {
  ModelConfig config;
  config.family = FamilyNamed("llama");
  config.hidden_size = 96;
  config.intermediate_size = 200;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 6;
  config.num_key_value_heads = 3;
  config.head_dim = 16;
  config.vocab_size = 101;
  config.max_position_embeddings = 256;
  config.layer_uses_window.assign(2, false);
  return config;
}

ModelLimits SmallLimits() {
  return {{.max_num_seqs = 4,
           .max_model_len = 128,
           .max_num_batched_tokens = 64,
           .block_tokens = 16,
           .num_kv_blocks = 10},
          WeightFormats::Of(DType::kBF16),
          ActivationDType::kF32,
          KvFormat::kBF16};
}

// One rank with zero weights, alone in its group.
class RunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto plan = ShardPlan::Create(Config(), 1);
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = std::make_unique<ShardPlan>(*std::move(plan));
    groups_ = NewLocalGroups(1);
    const RankNeeds needs = FootprintOf(*plan_, 0, limits_, *backend_);
    const CommLimits comm_limits = CommLimitsOf(*plan_, limits_);
    ClaimArenas(needs, limits_.num_kv_blocks, ledger_);
    auto comm = groups_[0]->Connect(comm_limits, ledger_);
    ASSERT_TRUE(comm.ok()) << comm.status();
    comm_ = *std::move(comm);
    auto arenas = TakeArenas(needs, limits_.num_kv_blocks, ledger_);
    ASSERT_TRUE(arenas.ok()) << arenas.status();
    runner_ =
        std::make_unique<ModelRunner>(*plan_, 0, limits_, *std::move(arenas), *backend_, *comm_);
  }

  // One sequence of two tokens, valid.
  static Step ValidStep() {
    Step step;
    step.plan.set_seq(1);
    step.plan.set_padded_tokens(2);
    step.plan.add_slot(0);
    step.plan.add_num_tokens(2);
    step.plan.add_start_position(0);
    step.plan.add_num_logits(1);
    step.plan.add_token_ids(5);
    step.plan.add_token_ids(6);
    step.plan.add_table_slot(0);
    step.plan.add_table_index(0);
    step.plan.add_table_block(1);
    return step;
  }

  ModelLimits limits_ = SmallLimits();
  std::unique_ptr<Device> device_ = NewHostDevice(0);
  MemoryLedger ledger_{*device_};
  std::unique_ptr<Backend> backend_ = NewOrderedBackend(*device_);
  std::unique_ptr<ShardPlan> plan_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST_F(RunnerTest, WhatWasPlannedIsTakenToTheByte) {
  ledger_.Seal();  // dies unless claimed == taken
  EXPECT_EQ(device_->allocated_bytes(), ledger_.claimed_bytes());
  const int64_t before = device_->allocated_bytes();
  ASSERT_TRUE(RunStep(*runner_, ValidStep()).ok());
  EXPECT_EQ(device_->allocated_bytes(), before);
}

TEST_F(RunnerTest, PlansThatOverstepTheSealedArenasAreABugWithTheRanksName) {
  ASSERT_TRUE(RunStep(*runner_, ValidStep()).ok());
  std::vector<Step> bad(11, ValidStep());
  bad[0].plan.set_slot(0, limits_.max_num_seqs);
  bad[1].plan.set_start_position(0, limits_.max_model_len - 1);
  bad[2].plan.set_token_ids(1, 101);
  bad[3].plan.set_token_ids(0, kLastSampled);
  bad[4].plan.set_table_block(0, static_cast<int>(limits_.num_kv_blocks) + 1);
  bad[5].plan.set_table_index(0, limits_.blocks_per_seq());
  bad[6].plan.set_num_logits(0, 3);
  bad[7].plan.add_token_ids(1);
  bad[8].plan.add_slot(1);
  bad[9].plan.set_padded_tokens(1);
  bad[10].plan.set_padded_tokens(limits_.max_num_batched_tokens + 1);
  for (size_t i = 0; i < bad.size(); ++i) {
    const absl::Status status = RunStep(*runner_, bad[i]).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << i;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kBug) << i;
    EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status;
  }
}

TEST(FootprintTest, MoreRanksNeverNeedMoreOfAnyTerm) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const std::unique_ptr<Backend> backend = NewOrderedBackend(*device);
  RankNeeds before;
  for (const int size : {1, 2, 4}) {
    const auto plan = ShardPlan::Create(Config(), size);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const RankNeeds now = FootprintOf(*plan, size - 1, SmallLimits(), *backend);
    const auto of = [](const RankNeeds& needs, MemoryCategory term) {
      return needs.category_bytes[static_cast<int>(term)];
    };
    if (size > 1) {
      EXPECT_LT(of(now, MemoryCategory::kWeights), of(before, MemoryCategory::kWeights)) << size;
      EXPECT_LE(of(now, MemoryCategory::kActivations), of(before, MemoryCategory::kActivations))
          << size;
      EXPECT_EQ(of(now, MemoryCategory::kBlockTables), of(before, MemoryCategory::kBlockTables))
          << size;
      EXPECT_LE(now.kv_block_bytes, before.kv_block_bytes) << size;
    }
    before = now;
  }
}

// Smaller groups have more cells, whose inputs' scales need room.
TEST(FootprintTest, SumsByNcclInBf16HaveTheirRoundedNumbersBesideThem) {
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const std::unique_ptr<Backend> backend = NewOrderedBackend(*device);
  const auto plan = ShardPlan::Create(Config(), 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ModelLimits limits = SmallLimits();
  limits.max_num_batched_tokens = 1 << 20;
  const auto bytes = [&](Transport transport, DType dtype) {
    limits.transport = transport;
    limits.sum_dtype = dtype;
    return FootprintOf(*plan, 1, limits, *backend)
        .category_bytes[static_cast<int>(MemoryCategory::kCommunication)];
  };
  EXPECT_EQ(bytes(Transport::kNccl, DType::kBF16) - bytes(Transport::kNccl, DType::kF32),
            int64_t{1 << 20} * Config().hidden_size * 2);
  for (const Transport transport : {Transport::kShared, Transport::kStaged}) {
    EXPECT_EQ(bytes(transport, DType::kBF16), bytes(transport, DType::kF32));
  }
}

TEST(FootprintTest, TheLeastGroupIsThatOfTheWeights) {
  const auto plan = ShardPlan::Create(Config(), 1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ModelLimits limits = SmallLimits();
  for (const auto& [group_size, least] : {std::pair{0, 32}, {16, 16}, {32, 32}, {128, 32}}) {
    limits.weights.group_size = group_size;
    EXPECT_EQ(StepLimitsOf(*plan, 0, limits).min_group, least) << group_size;
  }
}

// What latent attention caches is one vector a token and layer, and the same on every rank.
TEST(FootprintTest, ALatentCacheIsWholeOnEveryRank) {
  ModelConfig config = Config();
  config.family = FamilyNamed("deepseek_v2");
  config.num_attention_heads = 8;
  config.num_key_value_heads = 1;
  config.head_dim = 8;
  config.latent = {.kv_rank = 32, .nope_dim = 16, .rope_dim = 8, .value_dim = 16};
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const std::unique_ptr<Backend> backend = NewOrderedBackend(*device);
  for (const auto& [format, bits] : {std::pair<KvFormat, int>{KvFormat::kF32, 32 * 40},
                                     {KvFormat::kBF16, 16 * 40},
                                     {KvFormat::kInt8, 8 * 40 + 32},
                                     {KvFormat::kInt4, 4 * 40 + 32},
                                     {KvFormat::kFP8, 8 * 40}}) {
    for (const int size : {1, 2, 4, 8}) {
      const auto plan = ShardPlan::Create(config, size);
      ASSERT_TRUE(plan.ok()) << plan.status();
      ModelLimits limits = SmallLimits();
      limits.kv_format = format;
      for (int rank = 0; rank < size; ++rank) {
        const int64_t block_bytes = FootprintOf(*plan, rank, limits, *backend).kv_block_bytes;
        EXPECT_EQ(block_bytes, int64_t{2} * limits.block_tokens * bits / 8) << size;
      }
    }
  }
}

// Layers with heads of their own count with them; those that read another's cache not at all.
TEST(FootprintTest, ABlockIsTheSumOfTheLayersThatOwnKeysAndValues) {
  ModelConfig config = Config();
  config.family = FamilyNamed("gemma4");
  config.num_hidden_layers = 6;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 4;
  config.sliding_window = 32;
  config.layer_uses_window = {true, false, true, false, true, false};
  config.full_heads = {.num_key_value_heads = 2, .head_dim = 48};
  config.kv_layer = {0, 1, 2, 3, 2, 3};
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const std::unique_ptr<Backend> backend = NewOrderedBackend(*device);
  for (const int size : {1, 2, 4, 8}) {
    const auto plan = ShardPlan::Create(config, size);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const ModelLimits limits = SmallLimits();
    const int64_t window_layer = std::max(1, 4 / size) * 16;
    const int64_t full_layer = std::max(1, 2 / size) * 48;
    for (int rank = 0; rank < size; ++rank) {
      SCOPED_TRACE(testing::Message() << rank << " of " << size);
      EXPECT_EQ(FootprintOf(*plan, rank, limits, *backend).kv_block_bytes,
                2 * 2 * limits.block_tokens * (2 * window_layer + 2 * full_layer));
      const std::vector<LayerPlace> places = LayerPlacesOf(plan->rank(rank), limits);
      const int64_t token = 2 * limits.block_tokens;  // keys and values of bf16
      const int64_t offsets[] = {0, window_layer, window_layer + full_layer,
                                 2 * window_layer + full_layer};
      const int owner[] = {0, 1, 2, 3, 2, 3};
      for (int i = 0; i < 6; ++i) {
        EXPECT_EQ(places[i].offset_bytes, 2 * token * offsets[owner[i]]);
        EXPECT_EQ(places[i].geometry.head_dim, i % 2 == 0 ? 16 : 48);
      }
      EXPECT_EQ(HeadLayoutOf(*plan, rank, true).num_kv_heads, std::max(1, 2 / size));
    }
  }
}

TEST(RopeTableTest, SinesAndCosinesAreThoseOfTheMathLibrary) {
  RopeConfig rope;
  rope.theta = 500000;
  const int d = 64;
  const int positions = 3000;
  std::vector<float> values(positions * d);
  const MatrixView table(reinterpret_cast<std::byte*>(values.data()), DType::kF32, positions, d);
  FillRopeRows(rope, 4096, 0, table);
  const std::vector<float> inverse = RopeInverseFrequencies(rope, d, 4096);
  for (int p = 0; p < positions; p += 7) {
    for (int i = 0; i < d / 2; ++i) {
      const float angle = static_cast<float>(p) * inverse[i];
      EXPECT_EQ(table.F32(p)[i], static_cast<float>(std::cos(static_cast<double>(angle))))
          << p << " " << i;
      EXPECT_EQ(table.F32(p)[d / 2 + i], static_cast<float>(std::sin(static_cast<double>(angle))));
    }
  }
}

}  // namespace
}  // namespace bulkhead
