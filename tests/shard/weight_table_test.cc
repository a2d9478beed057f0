#include <gtest/gtest.h>

#include "shard/shard_plan.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

// Everything that any family may have.
ModelConfig FullConfig() {
  ModelConfig config = SmallConfig();
  config.qkv_bias = config.o_bias = config.mlp_bias = config.qk_norm = true;
  return config;
}

TEST(WeightTableTest, EveryNameComesBackFromItsParts) {
  const std::vector<WeightName> names = RequiredWeights(FullConfig());
  EXPECT_EQ(names.size(), 3U + 2 * 18);
  for (const WeightName& name : names) {
    const std::string text = WeightNameOf(name.kind, name.layer);
    const auto parsed = ParseWeightName(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed->kind, name.kind) << text;
    EXPECT_EQ(parsed->layer, name.layer) << text;
  }
}

TEST(WeightTableTest, NamesAreTheCheckpointsOwn) {
  EXPECT_EQ(WeightNameOf(WeightKind::kEmbedding, -1), "model.embed_tokens.weight");
  EXPECT_EQ(WeightNameOf(WeightKind::kQ, 11), "model.layers.11.self_attn.q_proj.weight");
  EXPECT_EQ(WeightNameOf(WeightKind::kDownBias, 0), "model.layers.0.mlp.down_proj.bias");
}

TEST(WeightTableTest, NothingIsGuessed) {
  for (const char* name : {"",
                           "model",
                           "model.layers.",
                           "model.layers.0",
                           "model.layers.0.",
                           "model.layers..mlp.up_proj.weight",
                           "model.layers.-1.mlp.up_proj.weight",
                           "model.layers.+1.mlp.up_proj.weight",
                           "model.layers.01.mlp.up_proj.weight",
                           "model.layers. 1.mlp.up_proj.weight",
                           "model.layers.99999999999999999999.mlp.up_proj.weight",
                           "model.layers.0.mlp.up_proj.weight ",
                           "model.layers.0.mlp.experts.0.up_proj.weight",
                           "model.layers.0.self_attn.qkv_proj.weight",
                           "model.layers.0.model.norm.weight",
                           "input_layernorm.weight",
                           "embed_tokens.weight",
                           "transformer.h.0.attn.weight",
                           "lm_head.bias",
                           "model.layers.0.lm_head.weight"}) {
    EXPECT_TRUE(absl::IsNotFound(ParseWeightName(name).status())) << name;
  }
}

TEST(WeightTableTest, SwitchesDecideWhatIsRequired) {
  ModelConfig config = SmallConfig();
  EXPECT_EQ(RequiredWeights(config).size(), 3U + 2 * 9);
  config.tie_word_embeddings = true;
  EXPECT_EQ(RequiredWeights(config).size(), 2U + 2 * 9);
  config.qkv_bias = true;
  EXPECT_EQ(RequiredWeights(config).size(), 2U + 2 * 12);
}

TEST(WeightTableTest, SurplusIsKnownByNameAlone) {
  ModelConfig config = SmallConfig();
  EXPECT_TRUE(IsKnownSurplus("model.layers.1.self_attn.rotary_emb.inv_freq", config));
  EXPECT_TRUE(IsKnownSurplus("model.rotary_emb.inv_freq", config));
  EXPECT_FALSE(IsKnownSurplus("lm_head.weight", config));
  EXPECT_FALSE(IsKnownSurplus("model.layers.1.self_attn.q_proj.bias", config));
  config.tie_word_embeddings = true;
  EXPECT_TRUE(IsKnownSurplus("lm_head.weight", config));
}

// Split weights are owned exactly once, except KV heads that are replicated; the others whole by
// all.
TEST(WeightTableTest, SlicesOfAllRanksCoverEachWeight) {
  const ModelConfig config = FullConfig();
  for (const int size : {1, 2, 3, 4, 5, 8}) {
    const auto plan = ShardPlan::Create(config, size);
    ASSERT_TRUE(plan.ok());
    for (const WeightName& name : RequiredWeights(config)) {
      const auto [rows, cols] = FullShapeOf(name.kind, config);
      std::vector<int> owners(rows * cols, 0);
      for (int rank = 0; rank < size; ++rank) {
        const WeightSlice slice = SliceOf(name.kind, config, plan->rank(rank));
        for (int64_t r = slice.rows.begin; r < slice.rows.end; ++r) {
          for (int64_t c = slice.cols.begin; c < slice.cols.end; ++c) ++owners.at(r * cols + c);
        }
      }
      const std::string text = WeightNameOf(name.kind, name.layer);
      const bool is_kv =
          text.find("k_proj") != std::string::npos || text.find("v_proj") != std::string::npos;
      const bool is_whole = text.find("norm") != std::string::npos ||
                            text.find("o_proj.bias") != std::string::npos ||
                            text.find("down_proj.bias") != std::string::npos;
      for (const int count : owners) {
        if (is_kv) {
          EXPECT_GE(count, 1) << text;
        } else {
          EXPECT_EQ(count, is_whole ? size : 1) << text << " at size " << size;
        }
      }
    }
  }
}

}  // namespace
}  // namespace bulkhead
