// A model in two layer ranges, as a pipeline of two groups has it: each plans, takes and loads its
// layers alone; hidden rows are handed over by hand; the same bits.
#include <gtest/gtest.h>

#include "comm/local/local_group.h"
#include "tests/support/golden.h"
#include "tests/support/loaded_runner.h"

namespace bulkhead {
namespace {

// Hands the rows of a step from one stage to the next.
void HandOver(LoadedRunner& first, LoadedRunner& second, int64_t rows) {
  const ConstMatrixView from = first->hidden(rows);
  const MatrixView to = second->hidden(rows);
  ASSERT_EQ(from.cols(), to.cols());
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(from.F32(row), from.cols(), to.F32(row));
  }
}

class LayerRange : public testing::TestWithParam<const char*> {
 protected:
  // A prompt in two chunks, then some tokens.
  std::vector<Step> Steps() const {
    const Golden golden = ReadGolden(dir_);
    const std::vector<int32_t>& prompt = golden.prompts[2];
    const std::vector<int32_t> head(prompt.begin(), prompt.begin() + 20);
    const std::vector<int32_t> tail(prompt.begin() + 20, prompt.end());
    std::vector<Step> steps = {MakeStep(limits_, 1, {{0, 0, head, 20}}),
                               MakeStep(limits_, 2, {{0, 20, tail, 3}, {1, 0, head, 2}})};
    for (int i = 0; i < 4; ++i) {
      steps.push_back(
          MakeStep(limits_, 3 + i,
                   {{0, static_cast<int>(prompt.size()) + i, {golden.greedy_ids[2][i]}, 1},
                    {1, 20 + i, {5}, 1}}));
    }
    return steps;
  }

  const std::string dir_ = std::string(BH_TEST_DATA) + "/models/" + GetParam();
  const ModelConfig config_ = LoadedRunner::ReadConfig(dir_);
  const ModelLimits limits_ = LoadedRunner::Limits(config_);
};

TEST_P(LayerRange, TwoRangesOneAfterTheOtherHaveTheBitsOfTheWhole) {
  const auto group = NewSingleGroup();
  const ShardPlan plan = *ShardPlan::Create(config_, 1);
  LoadedRunner whole(dir_, plan, limits_, *group);
  LoadedRunner first(dir_, plan.OfLayers({0, 1}), limits_, *group);
  LoadedRunner second(dir_, plan.OfLayers({1, 3}), limits_, *group);
  for (const Step& step : Steps()) {
    const StepOutput want = RunHere(*whole, step);
    Step without_samples;  // as it comes to a stage that has no logits
    without_samples.plan = step.plan;
    ASSERT_TRUE(RunStep(*first, without_samples).ok());
    HandOver(first, second, step.plan.token_ids_size());
    const StepOutput got = RunHere(*second, step);
    EXPECT_EQ(got.logits, want.logits);
    EXPECT_EQ(got.ids, want.ids);
  }
}

TEST_P(LayerRange, AStageHoldsWhatItsLayersNeedAndNoMore) {
  const auto device = NewHostDevice(0);
  const auto backend = NewOrderedBackend(*device);
  const ShardPlan plan = *ShardPlan::Create(config_, 2);
  const auto needs = [&](Range layers) {
    return FootprintOf(plan.OfLayers(layers), 1, limits_, *backend);
  };
  const auto of = [](const RankNeeds& needs, MemoryCategory term) {
    return needs.category_bytes[static_cast<int>(term)];
  };
  const RankNeeds whole = FootprintOf(plan, 1, limits_, *backend);
  const RankNeeds a = needs({0, 1}), b = needs({1, 2}), c = needs({2, 3});
  EXPECT_EQ(a.kv_block_bytes + b.kv_block_bytes + c.kv_block_bytes, whole.kv_block_bytes);
  // A tied embedding is on the first and on the last stage.
  int64_t shared = 0;
  for (const TensorRow& row : ModelTensors(config_)) {
    if (!config_.tie_word_embeddings || row.slot != kEmbedding || row.optional) continue;
    shared = StoredBytes(row, plan.rank(1), limits_.weights);
  }
  EXPECT_EQ(a.stored_weight_bytes + b.stored_weight_bytes + c.stored_weight_bytes,
            whole.stored_weight_bytes + shared);
  EXPECT_LT(b.stored_weight_bytes, std::min(a.stored_weight_bytes, c.stored_weight_bytes));
  EXPECT_EQ(of(a, MemoryCategory::kLogits), 0);
  EXPECT_EQ(of(c, MemoryCategory::kLogits), of(whole, MemoryCategory::kLogits));
}

INSTANTIATE_TEST_SUITE_P(Models, LayerRange,
                         testing::Values("llama3_gqa_bf16", "llama32_tied_bf16",
                                         "mistral_window_bf16", "qwen3_bf16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace bulkhead
