#include "shard/tensor_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/model/family.h"
#include "shard/family_spec.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Everything that a Llama may have.
ModelConfig FullConfig() {
  ModelConfig config = SmallConfig();
  config.qkv_bias = config.o_bias = config.mlp_bias = config.qk_norm = true;
  return config;
}

const RankShard& WholeOf(const ShardPlan& plan) { return plan.rank(0); }

std::vector<TensorRow> Held(const ModelConfig& config) {
  return TensorsOf(WholeOf(*ShardPlan::Create(config, 1)));
}

std::vector<std::string> OptionalNames(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const TensorRow& row : AllTensors(config)) {
    if (row.optional) names.push_back(row.Name());
  }
  return names;
}

TEST(TensorRowTest, NamesAreTheCheckpointsOwn) {
  std::set<std::string> names;
  for (const TensorRow& row : Held(FullConfig())) names.insert(row.Name());
  EXPECT_EQ(names.size(), 3U + 2 * 18);
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
        "model.layers.0.input_layernorm.weight", "model.layers.1.self_attn.q_proj.weight",
        "model.layers.0.mlp.down_proj.bias", "model.layers.1.self_attn.k_norm.weight"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(TensorRowTest, SwitchesDecideWhatIsHeld) {
  ModelConfig config = SmallConfig();
  const std::vector<std::string> caches = OptionalNames(config);
  EXPECT_THAT(caches, ElementsAre("model.rotary_emb.inv_freq",
                                  "model.layers.*.self_attn.rotary_emb.inv_freq"));
  EXPECT_THAT(Held(config), SizeIs(3 + 2 * 9));
  config.tie_word_embeddings = true;
  EXPECT_THAT(Held(config), SizeIs(2 + 2 * 9));
  EXPECT_THAT(OptionalNames(config), ElementsAre("lm_head.weight", caches[0], caches[1]));
  config.qkv_bias = true;
  EXPECT_THAT(Held(config), SizeIs(2 + 2 * 12));
}

// The forward pass finds a matrix by its slot alone: of one layer, one family, one meaning.
TEST(TensorRowTest, RowsOfASlotFitOneMatrix) {
  for (const FamilySpec* family : AllFamilySpecs()) {
    ModelConfig config = FullConfig();
    config.family = family;
    for (const auto& rows : {ModelTensors(config), LayerTensors(config, 1)}) {
      EXPECT_THAT(rows, testing::Not(IsEmpty()));
      for (const TensorRow& a : rows) {
        for (const TensorRow& b : rows) {
          if (a.slot != b.slot || a.optional || b.optional || a.is_vector() || b.is_vector()) {
            continue;
          }
          EXPECT_EQ(a.cols, b.cols) << a.Name() << " and " << b.Name();
          EXPECT_EQ(a.input_split, b.input_split) << a.Name() << " and " << b.Name();
          EXPECT_EQ(a.held_as, b.held_as) << a.Name() << " and " << b.Name();
        }
      }
    }
  }
}

// Split tensors are owned exactly once, except KV heads that are replicated; the others whole by
// all.
TEST(TensorRowTest, SlicesOfAllRanksCoverEachTensor) {
  const ModelConfig config = FullConfig();
  for (const int size : {1, 2, 3, 4, 5, 8}) {
    const auto plan = ShardPlan::Create(config, size);
    ASSERT_TRUE(plan.ok());
    for (const TensorRow& row : Held(config)) {
      std::vector<int> owners(row.rows * row.cols, 0);
      for (int rank = 0; rank < size; ++rank) {
        const TensorSlice slice = SliceOf(row, plan->rank(rank));
        for (int64_t r = slice.rows.begin; r < slice.rows.end; ++r) {
          for (int64_t c = slice.cols.begin; c < slice.cols.end; ++c) ++owners.at(r * row.cols + c);
        }
      }
      const std::string text = row.Name();
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

// A layer whose experts' gates are split by expert, or by width.
template <Split split>
void ExpertTensors(const ModelConfig& c, int /*layer*/, TensorTable& t) {
  static const char* const names[] = {"experts.0", "experts.1", "experts.2", "experts.3",
                                      "experts.4"};
  t.Norm(0, "norm", c.hidden_size);
  for (int expert = 0; expert < c.moe.num_experts; ++expert) {
    t.SetExpert(expert);
    t.ColumnParallel(1 + 2 * expert, names[expert], c.intermediate_size, c.hidden_size, split,
                     true);
    t.RowParallel(2 + 2 * expert, names[expert], c.hidden_size, c.intermediate_size, split, false);
  }
  t.SetExpert(-1);
  t.ColumnParallel(20, "shared", c.intermediate_size, c.hidden_size, Split::kMlp, false);
}

TEST(TensorRowTest, VectorsWithAPartForEachHeadAreSplitLikeHeads) {
  ModelConfig config = FullConfig();
  config.qk_norm_of_all_heads = config.attention_sinks = true;
  for (const int size : {1, 2, 3, 8}) {
    const auto plan = ShardPlan::Create(config, size);
    ASSERT_TRUE(plan.ok());
    for (int rank = 0; rank < size; ++rank) {
      const RankShard& shard = plan->rank(rank);
      int found = 0;
      for (const TensorRow& row : LayerTensors(config, 1)) {
        const Range slice = SliceOf(row, shard).cols;
        const auto expect = [&](const char* name, Range heads, int64_t width) {
          if (row.Name() != name) return;
          ++found;
          EXPECT_TRUE(row.is_vector());
          EXPECT_EQ(slice.begin, heads.begin * width) << name;
          EXPECT_EQ(slice.end, heads.end * width) << name;
        };
        expect("model.layers.1.self_attn.q_norm.weight", shard.heads, config.head_dim);
        expect("model.layers.1.self_attn.k_norm.weight", shard.kv_heads, config.head_dim);
        expect("model.layers.1.self_attn.sinks", shard.heads, 1);
      }
      EXPECT_EQ(found, 3);
    }
  }
}

TEST(TensorRowTest, ExpertsAreSplitByExpertOrByWidth) {
  for (const bool by_expert : {true, false}) {
    FamilySpec family = *SmallConfig().family;
    family.layer_tensors = by_expert ? ExpertTensors<Split::kExperts> : ExpertTensors<Split::kMlp>;
    ModelConfig config = SmallConfig();
    config.family = &family;
    config.moe.num_experts = 5;
    const WeightFormats bf16 = WeightFormats::Of(DType::kBF16);
    for (const int size : {1, 2, 3, 8}) {
      SCOPED_TRACE(testing::Message() << size << (by_expert ? " by expert" : " by width"));
      const auto plan = ShardPlan::Create(config, size);
      ASSERT_TRUE(plan.ok());
      for (const TensorRow& row : LayerTensors(config, 1)) {
        int64_t numbers = 0, owners = 0;
        for (int rank = 0; rank < size; ++rank) {
          const TensorSlice slice = SliceOf(row, plan->rank(rank));
          const int64_t count = slice.rows.size() * slice.cols.size();
          EXPECT_EQ(StoredBytes(row, plan->rank(rank), bf16), count * 2);
          numbers += count;
          owners += count > 0;
          if (row.is_vector()) continue;
          const LinearShape shape = LinearShapeOf(row, plan->rank(rank), bf16);
          EXPECT_EQ(shape.k_borders.back(), slice.cols.size());
        }
        EXPECT_EQ(numbers, row.rows * row.cols * (row.name == "norm" ? size : 1)) << row.Name();
        if (row.expert < 0) continue;
        EXPECT_EQ(owners, by_expert ? 1 : size) << row.Name();
      }
    }
  }
}

TEST(TensorRowTest, SumsAreCutAtTheLeavesOfTheirSplit) {
  const ModelConfig config = SmallConfig();
  const WeightFormats bf16 = WeightFormats::Of(DType::kBF16);
  for (const int size : {1, 2, 3, 8}) {
    const auto plan = ShardPlan::Create(config, size);
    ASSERT_TRUE(plan.ok());
    for (int rank = 0; rank < size; ++rank) {
      const RankShard& shard = plan->rank(rank);
      const auto borders = [&](const char* name) {
        const LinearShape shape = LinearShapeOf(RowOf(config, name), shard, bf16);
        EXPECT_EQ(shape.k_borders.back(), shape.cols) << name;
        EXPECT_EQ(shape.cols, SliceOf(RowOf(config, name), shard).cols.size()) << name;
        return shape.k_borders;
      };
      std::vector<int64_t> heads = shard.head_borders;
      for (int64_t& border : heads) border *= config.head_dim;
      EXPECT_EQ(borders("model.layers.0.self_attn.o_proj.weight"), heads);
      EXPECT_EQ(borders("model.layers.0.mlp.down_proj.weight"), shard.mlp_borders);
      EXPECT_THAT(borders("model.layers.0.mlp.up_proj.weight"), ElementsAre(0, config.hidden_size));
      EXPECT_THAT(borders("lm_head.weight"), ElementsAre(0, config.hidden_size));
      EXPECT_EQ(LinearShapeOf(RowOf(config, "lm_head.weight"), shard, bf16).rows,
                plan->vocab_cols()[rank]);
    }
  }
}

// A share's first input is some input of its group; with an index the groups are the whole
// weight's.
TEST(TensorRowTest, QuantisedSharesKnowWhereTheirGroupsBegin) {
  ModelConfig config = SmallConfig();
  config.intermediate_size = 80;
  const auto plan = ShardPlan::Create(config, 2, 16);
  ASSERT_TRUE(plan.ok());
  WeightFormats formats = WeightFormats::AtLoad(WeightFormat::kInt4, 32);
  const TensorRow down = RowOf(config, "model.layers.0.mlp.down_proj.weight");
  const RankShard& second = plan->rank(1);
  LinearShape shape = LinearShapeOf(down, second, formats);
  EXPECT_EQ(shape.format, WeightFormat::kInt4);
  EXPECT_EQ(shape.groups.size, 32);
  EXPECT_EQ(shape.groups.phase, second.mlp.begin % 32);
  EXPECT_GT(shape.groups.phase, 0);
  EXPECT_EQ(shape.groups.indexed, 0);
  formats.act_order = true;
  shape = LinearShapeOf(down, second, formats);
  EXPECT_EQ(shape.groups.indexed, 3);
  EXPECT_EQ(shape.groups.phase, 0);
  const LinearShape table = LinearShapeOf(RowOf(config, "lm_head.weight"), second, formats);
  EXPECT_EQ(table.format, WeightFormat::kInt8);
  EXPECT_EQ(table.groups.size, 128);
  EXPECT_EQ(table.groups.indexed, 0);
}

// Of a tensor of all heads each rank has the matrices of its own heads, as they are or transposed.
TEST(TensorRowTest, MatricesOfHeadsAreWithTheRankOfTheHead) {
  FamilySpec family = *SmallConfig().family;
  family.layer_tensors = [](const ModelConfig& c, int, TensorTable& t) {
    for (int head = 0; head < c.num_attention_heads; ++head) {
      t.OfHead(0, "kv", {head, head * int64_t{7}, 4, 42, true}, 5);
      t.OfHead(1, "kv", {head, head * int64_t{7} + 4, 3, 42}, 5);
    }
  };
  ModelConfig config = SmallConfig();
  config.family = &family;
  const WeightFormats bf16 = WeightFormats::Of(DType::kBF16);
  for (const int size : {1, 2, 3, 8}) {
    SCOPED_TRACE(size);
    const auto plan = ShardPlan::Create(config, size);
    ASSERT_TRUE(plan.ok());
    for (const TensorRow& row : LayerTensors(config, 1)) {
      EXPECT_THAT(row.Shape(), ElementsAre(42, 5));
      EXPECT_EQ(row.rows, row.is_transposed ? 5 : 3);
      EXPECT_EQ(row.cols, row.is_transposed ? 4 : 5);
      EXPECT_EQ(row.is_transposed ? row.file_input_begin : row.file_begin - 4, row.head * 7);
      for (int rank = 0; rank < size; ++rank) {
        const RankShard& shard = plan->rank(rank);
        const bool is_own = row.head >= shard.heads.begin && row.head < shard.heads.end;
        EXPECT_EQ(StoredBytes(row, shard, bf16), is_own ? row.rows * row.cols * 2 : 0);
        EXPECT_EQ(LinearShapeOf(row, shard, bf16).rows, is_own ? row.rows : 0);
      }
    }
  }
}

// Codes, scales and zeros as they are stored; what is kept in numbers beside them.
TEST(TensorRowTest, BytesOfQuantisedRowsAreThoseOfTheirFormat) {
  const ModelConfig config = SmallConfig();
  const auto plan = ShardPlan::Create(config, 1);
  TensorRow up = RowOf(config, "model.layers.0.mlp.up_proj.weight");
  WeightFormats formats = WeightFormats::Of(DType::kBF16);
  const auto bytes = [&](WeightFormat format, int group_size) {
    formats.layers = format;
    formats.group_size = group_size;
    return StoredBytes(up, plan->rank(0), formats);
  };
  const int64_t count = up.rows * up.cols;
  ASSERT_EQ(up.cols % 4, 0);
  EXPECT_EQ(bytes(WeightFormat::kMxfp4, 4), count / 2 + count / 4);
  EXPECT_EQ(bytes(WeightFormat::kInt4, 4), count / 2 + 3 * count / 4);
  EXPECT_EQ(bytes(WeightFormat::kInt8, 4), count + 2 * count / 4);
  EXPECT_EQ(bytes(WeightFormat::kFp8, 4), count + 4 * count / 4);
  EXPECT_EQ(bytes(WeightFormat::kNvfp4, 4), count / 2 + count / 4 + up.rows * 4);
  up.held_as = HeldAs::kKeptMatrix;
  EXPECT_EQ(bytes(WeightFormat::kMxfp4, 4), 2 * count);
  EXPECT_EQ(LinearShapeOf(up, plan->rank(0), formats).format, WeightFormat::kBF16);
}

}  // namespace
}  // namespace bulkhead
