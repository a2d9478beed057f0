// Requests whose embeddings are given: spans that hold exactly the rows of known tokens have the
// answer of those tokens.
#include <gtest/gtest.h>

#include "comm/local/local_group.h"
#include "tests/support/golden.h"
#include "tests/support/loaded_runner.h"
#include "tests/support/model_rig.h"

namespace bulkhead {
namespace {

constexpr int kAnswerTokens = 24;

TEST(GivenRowsTest, RowsOfKnownTokensAnswerAsTheTokensDo) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16";
  const ModelConfig config = LoadedRunner::ReadConfig(dir);
  const auto group = NewSingleGroup();
  LoadedRunner model(dir, *ShardPlan::Create(config, 1), LoadedRunner::Limits(config), *group);
  std::vector<Request> by_id, by_row;
  for (const std::vector<int32_t>& prompt : ReadGolden(dir).prompts) {
    Request& request = by_id.emplace_back();
    request.request_id = std::to_string(by_id.size());
    request.prompt = prompt;
    request.sampling.temperature = 0;
    request.stopping.max_tokens = kAnswerTokens;
    request.stopping.ignore_eos = true;
    request.wants_text = false;
    Request& given = by_row.emplace_back(request);
    const auto size = static_cast<int64_t>(prompt.size());
    // Apart, next to each other, and up to the last token; a lone token stays one.
    const std::vector<std::pair<int64_t, int64_t>> spans = {
        {size / 5, size / 3}, {size / 3, size / 2}, {size - 1, size}};
    for (const auto& [begin, end] : spans) {
      if (begin == end || size == 1) continue;
      EmbeddingSpan& span = given.embeddings.emplace_back();
      span.where.begin = begin;
      span.where.end = end;
      span.rows = model.Embeddings(absl::MakeConstSpan(prompt).subspan(begin, end - begin));
      std::fill(given.prompt.begin() + begin, given.prompt.begin() + end, 0);
    }
  }
  for (const int size : {1, 2}) {
    for (const int chunk : {512, 23}) {
      SCOPED_TRACE(testing::Message() << size << " ranks, steps of " << chunk);
      RigOptions options;
      options.size = size;
      options.max_num_batched_tokens = chunk;
      const auto want = RunRequests(dir, by_id, 1, options);
      EXPECT_EQ(want[0].size(), static_cast<size_t>(kAnswerTokens));
      EXPECT_EQ(RunRequests(dir, by_row, 1, options), want);
    }
  }
}

TEST(GivenRowsTest, AStepWithoutTheRowsThatItsPlanNamesIsABug) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16";
  const ModelConfig config = LoadedRunner::ReadConfig(dir);
  const ModelLimits limits = LoadedRunner::Limits(config);
  const auto group = NewSingleGroup();
  LoadedRunner model(dir, *ShardPlan::Create(config, 1), limits, *group);
  std::vector<float> rows = model.Embeddings({5, 6});
  const auto given = [&](int64_t first, int64_t count, int64_t cols) {
    Step step = MakeStep(limits, 1, {{0, 0, {1, kGivenRow, kGivenRow}, 1}});
    step.given_rows.push_back(
        {first, ConstMatrixView(reinterpret_cast<const std::byte*>(rows.data()), DType::kF32, count,
                                cols)});
    return step;
  };
  const int64_t width = config.hidden_size;
  EXPECT_TRUE(RunStep(*model, given(1, 2, width)).ok());
  EXPECT_EQ(RunHere(*model, given(1, 2, width)).logits,
            RunHere(*model, MakeStep(limits, 2, {{0, 0, {1, 5, 6}, 1}})).logits);
  for (const Step& step : {given(1, 1, width), given(0, 2, width), given(2, 2, width),
                           given(1, 2, width - 1), given(-1, 2, width)}) {
    EXPECT_EQ(RunStep(*model, step).status().code(), absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace bulkhead
