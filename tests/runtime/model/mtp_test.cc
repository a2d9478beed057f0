// The numbers of an MTP layer, as a reference has them: plain loops of numpy in float64 over the
// same checkpoint, whose logits of the model are transformers' (tests/data/models) to 1e-6; of
// Qwen's hybrids transformers 5 in float32, with the layer as a model of one, given its input.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_code.h"
#include "tests/runtime/model/mtp_checkpoint.h"
#include "tests/support/golden.h"
#include "tests/support/loaded_runner.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

// Of an MTP layer's step, of one row.
Step MtpStep(const ModelLimits& limits, uint64_t seq, const StepRow& row) {
  Step step = MakeStep(limits, seq, {row});
  step.plan.set_draft(true);
  step.plan.set_tokens_ahead(1);
  step.samples.clear();
  return step;
}

// Six logits of a row, of every 64th id.
using Logits = std::vector<float>;
struct Case {
  std::string fixture;
  MtpKind kind;
  Logits fifth;   // of the position
  Logits last;    // of the prompt, with the token that the model samples behind it
  int drafted;    // their best
  Logits second;  // of that one, from the layer's own state
};

const Case kCases[] = {{"glm4_moe_bf16",
                        MtpKind::kOwnTables,
                        {-2.1049F, 1.4501F, 1.2045F, -0.7835F, 0.1327F, -2.3141F},
                        {0.6634F, -0.6391F, 0.6870F, -1.7328F, -0.5303F, -2.6884F},
                        313,
                        {-0.9122F, -0.5262F, -2.6453F, 2.3284F, -1.4968F, -2.5201F}},
                       {"glm4_moe_bf16",
                        MtpKind::kSharedTables,
                        {2.3249F, -1.8298F, 2.7917F, -0.0939F, 0.4356F, -1.3745F},
                        {-0.7332F, -0.9640F, 0.2058F, -0.8433F, -2.4084F, -1.6871F},
                        40,
                        {0.6472F, -1.3401F, 2.1007F, 0.6289F, -2.0731F, 1.5351F}},
                       {"deepseek_v3_bf16",
                        MtpKind::kOwnTables,
                        {0.3683F, -0.0026F, 0.6038F, 1.9693F, 1.8489F, -0.5009F},
                        {-1.9258F, 0.3846F, -1.5370F, 1.2188F, 2.2381F, 0.2965F},
                        99,
                        {0.0461F, -1.0742F, 0.4060F, 0.3807F, 0.0784F, 0.4272F}},
                       {"deepseek_v3_bf16",
                        MtpKind::kSharedTables,
                        {-0.1741F, -0.8448F, 0.5056F, -1.4731F, -0.3305F, -0.2887F},
                        {-0.4010F, -1.1024F, -0.2662F, 3.8476F, -0.7482F, -1.7308F},
                        192,
                        {0.2833F, -0.8205F, -2.0101F, 2.5426F, -0.3254F, -1.3994F}},
                       {"qwen3_next_bf16",
                        MtpKind::kSharedTables,
                        {-4.0625F, -2.4222F, 3.4082F, -4.7564F, 1.1252F, -3.4550F},
                        {-4.8314F, 0.0059F, 2.9026F, -2.5250F, -0.2627F, 3.7201F},
                        59,
                        {5.1094F, 2.2390F, 4.7538F, 4.5688F, -4.9318F, 1.8402F}},
                       {"qwen3_5_bf16",
                        MtpKind::kSharedTables,
                        {-7.2630F, -7.4436F, -3.1161F, 0.5262F, 7.2530F, 0.9047F},
                        {7.9558F, -8.1707F, -12.4297F, -1.6333F, -3.9193F, 13.0313F},
                        305,
                        {1.6188F, 3.3506F, -10.3367F, -1.1266F, -5.7144F, -2.2597F}}};

struct Parts {
  ModelLimits limits;
  ShardPlan plan;
  ShardPlan mtp_plan;
};
Parts PartsOf(const std::string& dir, int size) {
  const ModelConfig config = LoadedRunner::ReadConfig(dir);
  return {LoadedRunner::Limits(config), *ShardPlan::Create(config, size),
          *ShardPlan::Create(MtpConfigOf(config), size)};
}

void ExpectLogits(const Case& c, int size) {
  SCOPED_TRACE(testing::Message() << c.fixture << " " << size);
  const MtpCheckpoint checkpoint(c.fixture, c.kind);
  const Golden golden = ReadGolden(checkpoint.dir());
  const std::vector<int32_t>& prompt = golden.prompts[2];
  std::vector<int32_t> behind(prompt.begin() + 1, prompt.end());
  behind.push_back(golden.greedy_ids[2][0]);
  const auto tokens = static_cast<int>(prompt.size());
  const Parts parts = PartsOf(checkpoint.dir(), size);
  RunRanks(size, [&](Group& group) {
    LoadedRunner runner(checkpoint.dir(), parts.plan, parts.limits, group,
                        LoadedRunner::Draft{checkpoint.dir(), parts.mtp_plan, parts.limits});
    const bool coordinator = group.exchange().topology().coordinator();
    CollectedLogits sink;
    const auto run = [&](Step step) {
      if (coordinator && step.plan.draft()) step.prompt_logits.push_back({0, &sink});
      if (!coordinator) step.samples.clear();
      EXPECT_TRUE(RunStep(runner.steps(), std::move(step)).ok());
    };
    // The model's step has another sequence before this one; the layer's comes in two pieces.
    run(MakeStep(parts.limits, 1, {{1, 0, {5, 6, 7}, 0}, {0, 0, prompt, 0}}));
    run(MtpStep(parts.limits, 2, {0, 0, behind, tokens}));
    run(MtpStep(parts.limits, 3, {0, tokens, {c.drafted}, 1}));
    if (!coordinator) return;
    const int64_t vocab = golden.vocab_size;
    ASSERT_EQ(sink.all.size(), static_cast<size_t>((tokens + 1) * vocab));
    const std::pair<const Logits&, int> rows[] = {
        {c.fifth, 5}, {c.last, tokens - 1}, {c.second, tokens}};
    for (const auto& [want, row] : rows) {
      for (int i = 0; i < 6; ++i) {
        EXPECT_NEAR(sink.all[row * vocab + 64 * i], want[i], 2e-4) << row << " " << i;
      }
    }
    const auto last = sink.all.begin() + (tokens - 1) * vocab;
    EXPECT_EQ(std::max_element(last, last + vocab) - last, c.drafted);
  });
}

TEST(MtpTest, LogitsAreThoseOfTheReference) {
  for (const Case& c : kCases) {
    for (const int size : {1, 2}) ExpectLogits(c, size);
  }
}

TEST(MtpTest, AStepWithoutTheHiddenStatesThatItNeedsIsABug) {
  const MtpCheckpoint checkpoint("glm4_moe_bf16", MtpKind::kSharedTables);
  const Parts parts = PartsOf(checkpoint.dir(), 1);
  RunRanks(1, [&](Group& group) {
    LoadedRunner runner(checkpoint.dir(), parts.plan, parts.limits, group,
                        LoadedRunner::Draft{checkpoint.dir(), parts.mtp_plan, parts.limits});
    const auto submit = [&](int slot, int start, int tokens) {
      StepRow row{slot, start, std::vector<int32_t>(tokens, 3), 0};
      return RunStep(runner.steps(), MtpStep(parts.limits, 2, row)).status();
    };
    EXPECT_EQ(ExitCodeOf(submit(0, 0, 1)), ExitCode::kBug);  // no step before
    const auto model = [&] {
      const Step step = MakeStep(parts.limits, 1, {{0, 10, {1, 2, 3}, 0}});
      EXPECT_TRUE(RunStep(runner.steps(), step).ok());
    };
    model();
    for (const auto& [slot, start, tokens] :
         {std::array{1, 10, 1}, std::array{0, 9, 2}, std::array{0, 11, 3}, std::array{0, 13, 1}}) {
      EXPECT_EQ(ExitCodeOf(submit(slot, start, tokens)), ExitCode::kBug) << slot << " " << start;
    }
    EXPECT_TRUE(submit(0, 11, 2).ok());
    EXPECT_EQ(ExitCodeOf(submit(0, 11, 1)), ExitCode::kBug);  // its own, of 11 and 12
    EXPECT_TRUE(submit(0, 13, 1).ok());
  });
}

}  // namespace
}  // namespace bulkhead
