// The planner on a model with states, which no token but max_num_seqs takes memory for.
#include <gtest/gtest.h>

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

// More ranks divide a state until each has one value head, and then hide nothing.
TEST(StateCapacityTest, StatesBindMaxNumSeqsAndAreNamed) {
  const ModelConfig config = Hybrid();
  EngineOptions options;
  const ModelLimits formats = {{.block_tokens = 16},
                               WeightFormats::Of(DType::kBF16),
                               ActivationDType::kF32,
                               KvFormat::kBF16};
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const std::unique_ptr<Backend> backend = NewCpuBackend(*device, {}).value();
  options.limits.max_model_len = 4096;
  const auto state_at = [&](int size, int max_num_seqs, int64_t bytes) {
    options.limits.max_num_seqs = max_num_seqs;
    auto plan = ModelCapacity(config, formats, options, *backend)
                    .Plan(std::vector<DeviceBudget>(size, DeviceBudget{.total_bytes = bytes}));
    BH_CHECK(plan.ok());
    return *std::move(plan);
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
  options.limits.max_num_seqs.reset();
  const auto fitted =
      ModelCapacity(config, formats, options, *backend)
          .Plan(std::vector<DeviceBudget>(4, DeviceBudget{.total_bytes = 16 * kGiB}));
  ASSERT_TRUE(fitted.ok() && fitted->fits);
}

}  // namespace
}  // namespace bulkhead
