// A step that decodes several known tokens of a sequence at once, as speculative decoding verifies
// its drafts: the same logits, and a sampled token for each row of them, as one by one.
#include <gtest/gtest.h>

#include "comm/local/local_group.h"
#include "tests/support/golden.h"
#include "tests/support/loaded_runner.h"

namespace bulkhead {
namespace {

TEST(DraftTokensTest, KnownTokensAtOnceHaveTheLogitsAndSamplesOfOneByOne) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/llama3_gqa_bf16";
  const ModelConfig config = LoadedRunner::ReadConfig(dir);
  const ModelLimits limits = LoadedRunner::Limits(config);
  const ShardPlan plan = *ShardPlan::Create(config, 1);
  const auto group = NewSingleGroup();
  const Golden golden = ReadGolden(dir);
  const std::vector<int32_t>& prompt = golden.prompts[2];
  const auto start = static_cast<int>(prompt.size());
  constexpr int kDrafts = 24;  // across the border of a block
  const std::vector<int32_t> drafts(golden.greedy_ids[2].begin(),
                                    golden.greedy_ids[2].begin() + kDrafts);
  StepOutput one_by_one;
  {
    LoadedRunner runner(dir, plan, limits, *group);
    RunHere(*runner, MakeStep(limits, 1, {{0, 0, prompt, 1}}));
    for (int i = 0; i < kDrafts; ++i) {
      const StepOutput row =
          RunHere(*runner, MakeStep(limits, 2 + i, {{0, start + i, {drafts[i]}, 1}}));
      one_by_one.logits.insert(one_by_one.logits.end(), row.logits.begin(), row.logits.end());
      one_by_one.ids.push_back(row.ids[0]);
    }
  }
  for (int i = 0; i + 1 < kDrafts; ++i) EXPECT_EQ(one_by_one.ids[i], drafts[i + 1]);

  LoadedRunner runner(dir, plan, limits, *group);
  RunHere(*runner, MakeStep(limits, 1, {{0, 0, prompt, 1}, {1, 0, prompt, 1}}));
  // Beside a sequence whose drafts were rejected: they are overwritten.
  const std::vector<int32_t> wrong(kDrafts, 7);
  RunHere(*runner, MakeStep(limits, 2, {{1, start, wrong, kDrafts}}));
  const StepOutput both = RunHere(
      *runner, MakeStep(limits, 3, {{0, start, drafts, kDrafts}, {1, start, drafts, kDrafts}}));
  const auto twice = [](auto all) {
    const auto once = all;
    all.insert(all.end(), once.begin(), once.end());
    return all;
  };
  EXPECT_EQ(both.logits, twice(one_by_one.logits));
  EXPECT_EQ(both.ids, twice(one_by_one.ids));
  // Of all rows the last alone is sampled, as a scheduler without drafts plans it.
  Step last = MakeStep(limits, 4, {{0, start, drafts, kDrafts}});
  last.samples.erase(last.samples.begin(), last.samples.end() - 1);
  EXPECT_EQ(RunHere(*runner, last).ids, (std::vector<int32_t>{one_by_one.ids.back()}));
}

}  // namespace
}  // namespace bulkhead
