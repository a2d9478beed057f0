// Groups of layers with block tables of their own, those of windows with few blocks: the same bits
// as with one table for all.
#include "runtime/model/kv_groups.h"

#include <gtest/gtest.h>

#include "comm/local/local_group.h"
#include "tests/support/golden.h"
#include "tests/support/loaded_runner.h"
#include "tests/support/model_rig.h"

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
  two_groups.kv_groups = {{.num_layers = 2}, {.num_layers = 1, .window = 16}};
  two_groups.kv_group_of_layer = {0, 1, 0};
  LoadedRunner one(dir, plan, limits, *group);
  LoadedRunner two(dir, plan, two_groups, *group);
  EXPECT_EQ(two->kv().block_bytes, one->kv().block_bytes / 3 * 2);  // a block fits either group
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

// Every `period`-th layer is without a window.
ModelConfig WindowedConfig(int num_layers, int period, int window) {
  ModelConfig config;
  config.num_hidden_layers = num_layers;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.sliding_window = window;
  for (int layer = 1; layer <= num_layers; ++layer) {
    config.layer_uses_window.push_back(period == 0 || layer % period != 0);
  }
  return config;
}

// "10 9w 9w": layers of each group.
std::string GroupsOf(const ModelConfig& config, int max_model_len) {
  Limits limits{.max_model_len = max_model_len, .block_tokens = 16};
  SetKvGroups(config, limits);
  std::string text;
  std::vector<int> layers(limits.num_kv_groups(), 0);
  for (const int group : limits.kv_group_of_layer) ++layers[group];
  for (size_t i = 0; i < limits.kv_groups.size(); ++i) {
    const KvGroup& group = limits.kv_groups[i];
    EXPECT_EQ(layers[i], group.num_layers);
    text += std::to_string(group.num_layers) + (group.window > 0 ? "w " : " ");
  }
  return text;
}

TEST(KvGroupTest, GroupsWasteLittleOfTheirBlocks) {
  EXPECT_EQ(GroupsOf(WindowedConfig(62, 6, 1024), 131072), "10 9w 9w 9w 9w 9w 7w ");  // Gemma 3
  EXPECT_EQ(GroupsOf(WindowedConfig(24, 2, 128), 131072), "12 12w ");                 // gpt-oss
  EXPECT_EQ(GroupsOf(WindowedConfig(48, 4, 8192), 1 << 20), "12 12w 12w 12w ");       // Llama 4
  EXPECT_EQ(GroupsOf(WindowedConfig(3, 2, 24), 256), "1 1w 1w ");
  // Wider heads in the layers without a window.
  ModelConfig gemma4 = WindowedConfig(30, 6, 512);
  gemma4.full_heads = {.num_key_value_heads = 8, .head_dim = 256};
  EXPECT_EQ(GroupsOf(gemma4, 131072), "5 9w 9w 7w ");
}

TEST(KvGroupTest, WindowsThatShowEverythingMakeNoGroups) {
  EXPECT_EQ(GroupsOf(WindowedConfig(24, 2, 4096), 4096), "");
  EXPECT_EQ(GroupsOf(WindowedConfig(24, 2, 0), 4096), "");
}

TEST(KvGroupTest, OneGroupKeepsAllWhereAllLayersHaveWindows) {
  EXPECT_EQ(GroupsOf(WindowedConfig(32, 0, 4096), 32768), "4 4w 4w 4w 4w 4w 4w 4w ");
}

// Conversations whose later turns begin with earlier ones, in a pool for little more than one.
TEST(KvGroupTest, WindowsThatFreeBlocksChangeNoToken) {
  for (const char* model : {"mistral_window_bf16", "qwen2_window_layers_bf16", "gemma3_bf16",
                            "gpt_oss_bf16", "gemma4_bf16", "llama4_bf16"}) {
    SCOPED_TRACE(model);
    const std::string dir = std::string(BH_TEST_DATA) + "/models/" + model;
    const Golden golden = ReadGolden(dir);
    std::vector<Request> requests;
    for (const size_t prompt : {2, 3, 2, 3, 1, 2}) {
      Request request;
      request.request_id = std::to_string(requests.size());
      request.prompt = golden.prompts[prompt];
      const auto& tail = golden.greedy_ids[prompt];
      const size_t turns = requests.size() / 2;
      request.prompt.insert(request.prompt.end(), tail.begin(), tail.begin() + 11 * turns);
      request.sampling.temperature = 0;
      request.stopping.max_tokens = 90;
      request.stopping.ignore_eos = true;
      requests.push_back(std::move(request));
    }
    RigOptions options;
    const auto want = RunRequests(dir, requests, 1, options);
    options.kv_groups = true;
    for (const int size : {1, 2}) {
      for (const int tokens : {7, 64}) {
        options.size = size;
        options.max_num_batched_tokens = tokens;
        for (const bool caches : {false, true}) {
          options.prefix_caching = caches;
          EXPECT_EQ(RunRequests(dir, requests, 1, options), want) << size << " " << tokens;
        }
      }
    }
  }
}

}  // namespace
}  // namespace bulkhead
