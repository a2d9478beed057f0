// The planner on models whose layers do not all keep every token: with states, which max_num_seqs
// and no token takes memory for, and with windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "launcher/planning/model_capacity.h"
#include "memory/device.h"
#include "tests/support/family_named.h"

namespace bulkhead {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

ModelConfig Hybrid() {
  ModelConfig config;
  config.family = FamilyNamed("qwen3_5");
  config.architecture = "Qwen3_5ForCausalLM";
  config.hidden_size = 4096;
  config.intermediate_size = 14336;
  config.num_hidden_layers = 32;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.vocab_size = 128256;
  config.max_position_embeddings = 131072;
  config.layer_uses_window.assign(32, false);
  config.attention_gate = true;
  config.delta.num_key_heads = 2;
  config.delta.num_value_heads = 4;
  config.delta.key_dim = 128;
  config.delta.value_dim = 128;
  config.delta.conv_taps = 4;
  config.delta.layer_uses_delta.assign(32, true);
  config.delta.layer_uses_delta.back() = false;
  return config;
}

class LayerKindsTest : public testing::Test {
 protected:
  Capacity Plan(const ModelConfig& config, int size, int64_t bytes) const {
    const ModelLimits formats = {{.block_tokens = 16},
                                 WeightFormats::Of(DType::kBF16),
                                 ActivationDType::kF32,
                                 KvFormat::kBF16};
    auto plan = ModelCapacity(config, formats, options_, *backend_)
                    .Plan(std::vector<DeviceBudget>(size, DeviceBudget{.total_bytes = bytes}));
    BH_CHECK(plan.ok());
    return *std::move(plan);
  }

  EngineOptions options_;
  const std::unique_ptr<Device> device_ = NewHostDevice(0);
  const std::unique_ptr<Backend> backend_ = NewCpuBackend(*device_, {}).value();
};

// More ranks divide a state until each has one value head, and then hide nothing.
TEST_F(LayerKindsTest, StatesBindMaxNumSeqsAndAreNamed) {
  const ModelConfig config = Hybrid();
  options_.limits.max_model_len = 4096;
  const auto state_at = [&](int size, int max_num_seqs, int64_t bytes) {
    options_.limits.max_num_seqs = max_num_seqs;
    return Plan(config, size, bytes);
  };
  constexpr auto kState = static_cast<int>(MemoryCategory::kState);
  const int64_t whole = state_at(1, 256, 1000 * kGiB).ranks[0].arena_bytes[kState];
  EXPECT_GT(whole, int64_t{256} * 31 * 4 * 128 * 128 * 4);
  EXPECT_EQ(state_at(1, 512, 1000 * kGiB).ranks[0].arena_bytes[kState], 2 * whole);
  EXPECT_EQ(state_at(2, 256, 1000 * kGiB).ranks[1].arena_bytes[kState], whole / 2);
  const Capacity many = state_at(8, 256, 1000 * kGiB);
  for (const RankCapacity& rank : many.ranks) {
    const int64_t bytes = rank.arena_bytes[kState];
    EXPECT_TRUE(bytes == 0 || bytes > whole / 4) << bytes;  // its key head is another's, too
  }
  for (const int size : {4, 8, 16}) {
    SCOPED_TRACE(size);
    const Capacity refused = state_at(size, 4096, 16 * kGiB);
    ASSERT_TRUE(refused.shortage.has_value());
    EXPECT_EQ(refused.shortage->category, MemoryCategory::kState);
  }
  options_.limits.max_num_seqs.reset();
  EXPECT_TRUE(Plan(config, 4, 16 * kGiB).fits);
}

// Ranks divide KV heads, and nothing else of what a window keeps.
TEST_F(LayerKindsTest, WindowsBindAsFullAttentionDoesAndLater) {
  ModelConfig config = Hybrid();
  config.family = FamilyNamed("gemma3");
  config.architecture = "Gemma3ForCausalLM";
  config.attention_gate = false;
  config.delta = {};
  config.sliding_window = 1024;
  for (int layer = 0; layer < 32; ++layer) config.layer_uses_window[layer] = layer % 4 != 3;
  options_.limits.max_model_len = 131072;
  options_.limits.max_num_seqs = 4;
  options_.limits.max_num_batched_tokens = 2048;
  for (const int size : {1, 2, 8, 16}) {
    SCOPED_TRACE(size);
    const Capacity plan = Plan(config, size, 1000 * kGiB);
    ASSERT_TRUE(plan.fits);
    ASSERT_EQ(plan.limits.num_kv_groups(), 4);
    const int64_t blocks = plan.limits.BlocksFor(131072);
    EXPECT_EQ(blocks, 8192 + 3 * (64 + 2));
    EXPECT_EQ(plan.limits.step_blocks(), 3 * 2048 / 16);
    EXPECT_EQ(plan.limits.num_kv_blocks, 4 * blocks + plan.limits.step_blocks());
    EXPECT_EQ(plan.full_sequences, 4);
    const RankCapacity& rank = plan.ranks[0];
    const int64_t token = int64_t{2} * 2 * 128 * std::max(1, 8 / size);  // keys and values of bf16
    EXPECT_EQ(rank.kv_block_bytes, 16 * 8 * token);
    EXPECT_EQ(rank.kv_layers_bytes, 16 * 32 * token);
    EXPECT_EQ(rank.KvBytesPerToken(plan.limits), 8 * token);
    EXPECT_TRUE(Plan(config, size, rank.required_bytes).fits);
    const Capacity refused = Plan(config, size, rank.required_bytes - 1);
    ASSERT_TRUE(refused.shortage.has_value());
    EXPECT_EQ(refused.shortage->category, MemoryCategory::kKv);
    EXPECT_EQ(refused.shortage->needed_bytes,
              plan.limits.LeastBlocks(131072) * rank.kv_block_bytes);
  }
}

}  // namespace
}  // namespace bulkhead
