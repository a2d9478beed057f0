// How the rows of a family's table become the weights arena, and what the forward pass multiplies
// with.
#include "runtime/model/weights.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "runtime/model/family.h"
#include "shard/module_filter.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

// A packed weight takes a byte a number.
class PlainSizes final : public BackendSizes {
 public:
  int64_t PackedBytes(const LinearShape& shape) const override { return shape.rows * shape.cols; }
  int64_t WorkspaceBytes(const StepLimits&, const HeadLayout&) const override { return 0; }
  bool samples_tokens() const override { return false; }
};

ModelConfig FullConfig() {
  ModelConfig config = SmallConfig();
  config.qkv_bias = config.o_bias = config.mlp_bias = config.qk_norm = true;
  return config;
}

TEST(WeightsTest, ASlotHoldsTheSlicesOfItsRowsOneAfterTheOther) {
  const ModelConfig config = FullConfig();
  for (const int size : {1, 2, 3, 8}) {
    const auto plan = ShardPlan::Create(config, size);
    ASSERT_TRUE(plan.ok());
    for (int rank = 0; rank < size; ++rank) {
      const RankShard& shard = plan->rank(rank);
      BumpAllocator arena;
      const ModelWeights weights =
          LayOutWeights(shard, WeightFormats::Of(DType::kBF16), PlainSizes(), arena);
      ASSERT_EQ(weights.layers.size(), 2u);
      std::map<int, int64_t> outputs, elements;  // by slot
      for (const TensorRow& row : LayerTensors(config, 1)) {
        const TensorSlice slice = SliceOf(row, shard);
        (row.is_vector() ? elements[row.slot] : outputs[row.slot]) +=
            row.is_vector() ? slice.cols.size() : slice.rows.size();
      }
      EXPECT_EQ(outputs.size(), 4u);
      for (const auto& [slot, rows] : outputs) {
        ASSERT_EQ(weights.layers[1][slot].parts.size(), 1u);
        EXPECT_EQ(weights.layers[1][slot].parts[0].shape.rows, rows);
      }
      for (const auto& [slot, cols] : elements) {
        EXPECT_EQ(weights.layers[1][slot].vector.cols(), cols);
      }
    }
  }
}

// Each matrix and vector has bytes of its own, and the arena no others but for alignment.
TEST(WeightsTest, NothingOverlapsInTheArena) {
  const ModelConfig config = FullConfig();
  const auto plan = ShardPlan::Create(config, 2);
  std::vector<std::byte> memory(1 << 20);
  BumpAllocator arena(memory.data());
  ModelWeights weights =
      LayOutWeights(plan->rank(1), WeightFormats::Of(DType::kBF16), PlainSizes(), arena);
  std::map<const std::byte*, int64_t> extents;
  const auto add = [&](LayerWeights& layer) {
    for (const Weight& weight : layer.slots()) {
      for (const Linear& part : weight.parts) {
        EXPECT_TRUE(extents.emplace(part.packed, PlainSizes().PackedBytes(part.shape)).second);
      }
      if (!weight.vector.empty()) {
        EXPECT_TRUE(extents.emplace(weight.vector.data(), weight.vector.cols() * 4).second);
      }
    }
  };
  add(weights.model);
  for (LayerWeights& layer : weights.layers) add(layer);
  EXPECT_EQ(extents.size(), 3u + 2 * (4 + 4 + 4));  // matrices, their biases, norms
  const std::byte* end = memory.data();
  for (const auto& [begin, bytes] : extents) {
    EXPECT_GE(begin, end);
    EXPECT_LT(begin - end, BumpAllocator::kAlignBytes);
    end = begin + bytes;
  }
  EXPECT_LT(memory.data() + arena.used_bytes() - end, BumpAllocator::kAlignBytes);
}

// Layers that are alike are looked at once; their sums are those of all.
TEST(WeightsTest, NeedsAreThoseOfTheLayout) {
  const WeightFormats formats = WeightFormats::Of(DType::kBF16);
  for (const std::string& dir : FixtureDirs()) {
    const ModelConfig config = FixtureConfig(dir);
    const LayerKinds layers(config);
    EXPECT_LE(layers.size(), 4) << dir;  // dense or with experts; of two kinds of heads
    for (const int size : {1, 2, 8}) {
      SCOPED_TRACE(testing::Message() << dir << " at " << size);
      const auto plan = ShardPlan::Create(config, size);
      ASSERT_TRUE(plan.ok()) << plan.status();
      for (const ShardPlan& stage : {*plan, plan->OfLayers({1, config.num_hidden_layers})}) {
        const RankShard& shard = stage.rank(size - 1);
        BumpAllocator arena;
        LayOutWeights(shard, formats, PlainSizes(), arena);
        const WeightNeeds needs = WeightNeedsOf(shard, formats, PlainSizes(), layers);
        EXPECT_EQ(needs.arena_bytes, arena.used_bytes());
        EXPECT_EQ(needs.stored_bytes, StoredWeightBytes(shard, formats));
        EXPECT_EQ(needs.max_inputs, MaxInputsOf(TensorsOf(shard), shard));
      }
    }
  }
}

TEST(WeightsTest, ATiedHeadIsTheEmbedding) {
  ModelConfig config = SmallConfig();
  config.tie_word_embeddings = true;
  const auto plan = ShardPlan::Create(config, 1);
  std::vector<std::byte> memory(1 << 20);
  BumpAllocator arena(memory.data());
  const ModelWeights weights =
      LayOutWeights(plan->rank(0), WeightFormats::Of(DType::kBF16), PlainSizes(), arena);
  ASSERT_EQ(weights.model[kLmHead].parts.size(), 1u);
  EXPECT_EQ(weights.model[kLmHead].parts[0].packed, weights.model[kEmbedding].parts[0].packed);
}

// Rows of one slot that a checkpoint holds in unlike formats lie apart.
TEST(WeightsTest, RowsOfUnlikeFormatsLieApart) {
  ModelConfig config = SmallConfig();
  auto modules = std::make_shared<ModuleFilter>();
  modules->targets.AddAll();
  modules->ignored.AddName("model.layers.0.self_attn.k_proj");
  config.quantization = {.method = QuantizationConfig::Method::kPackQuantized, .group_size = 32};
  config.quantization.modules = modules;
  const auto plan = ShardPlan::Create(config, 2);
  BumpAllocator arena;
  const ModelWeights weights = LayOutWeights(
      plan->rank(0), WeightFormats::StoredBy(config, DType::kBF16), PlainSizes(), arena);
  const TensorRow row = RowOf(config, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(row.held_as, HeldAs::kKeptMatrix);
  const auto& parts = weights.layers[0][row.slot].parts;
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].shape.format, WeightFormat::kInt4);
  EXPECT_EQ(parts[1].shape.format, WeightFormat::kBF16);
  EXPECT_EQ(parts[2].shape.format, WeightFormat::kInt4);
  EXPECT_EQ(weights.layers[1][row.slot].parts.size(), 1u);
}

// With act order every row has an index of its own, so that none are fused.
TEST(WeightsTest, RowsWithAnIndexLieApart) {
  const ModelConfig config = SmallConfig();
  const auto plan = ShardPlan::Create(config, 2);
  WeightFormats formats = WeightFormats::AtLoad(WeightFormat::kInt4, 32);
  formats.act_order = true;
  BumpAllocator arena;
  const ModelWeights weights = LayOutWeights(plan->rank(0), formats, PlainSizes(), arena);
  std::map<int, size_t> rows;  // by slot
  for (const TensorRow& row : LayerTensors(config, 0)) rows[row.slot] += !row.is_vector();
  std::multiset<size_t> parts;
  for (const auto& [slot, count] : rows) {
    EXPECT_EQ(weights.layers[0][slot].parts.size(), count);
    if (count > 0) parts.insert(count);
  }
  EXPECT_EQ(parts, (std::multiset<size_t>{1, 1, 2, 3}));  // o, down, gate_up, qkv
}

}  // namespace
}  // namespace bulkhead
