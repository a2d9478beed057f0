// How the rows of a family's table become the weights arena, and what the forward pass multiplies
// with.
#include "runtime/model/weights.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "runtime/model/family.h"
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
