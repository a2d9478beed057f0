// Groups of layers with block tables of their own, as sliding-window layers beside others want
// them: the same bits as with one table for all.
#include <gtest/gtest.h>

#include "comm/local/local_group.h"
#include "tests/support/golden.h"
#include "tests/support/loaded_runner.h"

namespace bulkhead {
namespace {

// The step of one group, for two: the second one's blocks are others.
Step ForTwoGroups(Step step) {
  internal::StepPlan& plan = step.plan;
  const int changes = plan.table_slot_size();
  for (int i = 0; i < changes; ++i) plan.add_table_group(0);
  for (int i = 0; i < changes; ++i) {
    plan.add_table_group(1);
    plan.add_table_slot(plan.table_slot(i));
    plan.add_table_index(plan.table_index(i));
    plan.add_table_block(65 - plan.table_block(i));
  }
  return step;
}

TEST(KvGroupTest, TwoGroupsOfLayersHaveTheBitsOfOne) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/mistral_window_bf16";
  const ModelConfig config = LoadedRunner::ReadConfig(dir);
  const ShardPlan plan = *ShardPlan::Create(config, 1);
  const auto group = NewSingleGroup();
  const Golden golden = ReadGolden(dir);
  const std::vector<int32_t>& prompt = golden.prompts[3];
  const ModelLimits limits = LoadedRunner::Limits(config);
  ModelLimits two_groups = limits;
  two_groups.kv_group_of_layer = {0, 1, 0};
  LoadedRunner one(dir, plan, limits, *group);
  LoadedRunner two(dir, plan, two_groups, *group);
  EXPECT_EQ(one->kv().geometry.num_layers, 3);
  EXPECT_EQ(two->kv().geometry.num_layers, 2);  // so that a block fits either group
  const auto size = static_cast<int>(prompt.size());
  std::vector<Step> steps = {MakeStep(limits, 1, {{0, 0, prompt, 4}, {1, 0, {1, 2, 3}, 1}})};
  for (int i = 0; i < 4; ++i) {
    steps.push_back(
        MakeStep(limits, 2 + i, {{0, size + i, {golden.greedy_ids[3][i]}, 1}, {1, 3 + i, {4}, 1}}));
  }
  for (const Step& step : steps) {
    const StepOutput want = RunHere(*one, step);
    EXPECT_EQ(RunHere(*two, ForTwoGroups(step)).logits, want.logits);
  }
  Step wrong = ForTwoGroups(steps[0]);
  wrong.plan.set_table_group(0, 2);
  EXPECT_EQ(RunStep(*two, wrong).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(RunStep(*one, ForTwoGroups(steps[0])).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace bulkhead
