// Small checkpoints drafting for each other: the tokens are those of the model alone, and a model
// that drafts for itself is always right.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/coordinator.h"
#include "runtime/engine/drafts.h"
#include "runtime/engine/rank_loop.h"
#include "runtime/model/kv_groups.h"
#include "tests/runtime/engine/recording_sink.h"
#include "tests/runtime/model/mtp_checkpoint.h"
#include "tests/support/golden.h"
#include "tests/support/loaded_runner.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

// A fixture's, or a path.
std::string Dir(const std::string& name) {
  return name.starts_with('/') ? name : BH_TEST_DATA "/models/" + name;
}

struct Setting {
  int size = 1;
  std::string draft = "";  // a checkpoint; none: the model alone
  bool mtp = false;        // the model's MTP layer, of that checkpoint
  bool kv_groups = false;
  Admission admission = Admission::kReserve;
  int64_t num_kv_blocks = 64;
};

struct Outcome {
  std::vector<std::vector<TokenId>> tokens;  // by request
  DraftTotals drafts;
  int preemptions = 0;
};

// What is asked again begins behind what the cache has of it.
std::vector<Request> Requests(const std::string& model) {
  std::vector<Request> requests;
  Golden golden = ReadGolden(Dir(model));
  if (golden.prompts.size() == 3) golden.prompts.push_back(LongPrompt(golden, 96));
  for (int i = 0; i < 18; ++i) {
    Request& request = requests.emplace_back();
    request.request_id = std::to_string(i);
    request.prompt = golden.prompts[i % golden.prompts.size()];
    request.stopping.max_tokens = 20 + i;
    request.stopping.ignore_eos = true;
    request.sampling.temperature = static_cast<float>(i % 3) / 2;
    request.sampling.seed = static_cast<uint64_t>(i);
    if (i % 4 == 1) request.logits.presence_penalty = 1.5F;
    if (i % 5 == 1) request.sampling.top_p = 0.7F;
  }
  return requests;
}

Outcome Generate(const std::string& model, const Setting& setting) {
  const ModelConfig config = LoadedRunner::ReadConfig(Dir(model));
  ModelLimits limits = LoadedRunner::Limits(config);
  limits.num_kv_blocks = setting.num_kv_blocks;
  if (setting.kv_groups) SetKvGroups(config, limits);
  const ShardPlan plan = *ShardPlan::Create(config, setting.size);
  const bool drafts = !setting.draft.empty();
  ModelConfig draft_config = LoadedRunner::ReadConfig(Dir(drafts ? setting.draft : model));
  if (setting.mtp) draft_config = MtpConfigOf(draft_config);
  ModelLimits draft_limits = LoadedRunner::Limits(draft_config);
  draft_limits.num_kv_blocks = setting.num_kv_blocks;
  if (!setting.mtp) draft_limits.max_num_batched_tokens = DraftStepTokens(limits);
  draft_limits.max_model_len = limits.max_model_len - 40;
  const ShardPlan draft_plan = *ShardPlan::Create(draft_config, setting.size);
  Outcome run;
  RunRanks(setting.size, [&](Group& group) {
    std::optional<LoadedRunner::Draft> draft;
    if (drafts) draft.emplace(LoadedRunner::Draft{Dir(setting.draft), draft_plan, draft_limits});
    LoadedRunner runner(Dir(model), plan, limits, group, std::move(draft));
    StepRunner& steps = runner.steps();
    ControlBus* const bus = setting.size > 1 ? &group.bus() : nullptr;
    if (!group.exchange().topology().coordinator()) {
      EXPECT_TRUE(RunRank(steps, bus, nullptr, nullptr).ok());
      return;
    }
    Coordinator::Options options;
    options.limits.Limits::operator=(limits);
    options.limits.max_num_queued_reqs = 100;
    options.limits.max_num_queued_tokens = 100000;
    options.limits.prefix_caching = true;
    options.limits.admission = setting.admission;
    options.limits.shares_samples = setting.size > 1;
    if (drafts) {
      options.limits.drafts = {.num_speculative_tokens = 4,
                               .draft_model_len = draft_limits.max_model_len,
                               .mtp = setting.mtp};
    }
    options.now_ns = [] { return uint64_t{1}; };  // no step takes time: all may be drafted
    Coordinator coordinator(std::move(options));
    coordinator.SetServing();
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (const Request& request : Requests(model)) {
      sinks.push_back(std::make_shared<RecordingSink>());
      EXPECT_TRUE(coordinator.Submit(request, sinks.back()).ok());
    }
    coordinator.BeginDrain(absl::InfiniteDuration());
    EXPECT_TRUE(RunRank(steps, bus, &coordinator, nullptr).ok());
    for (const auto& sink : sinks) {
      const RequestEnd end = sink->WaitForEnd();
      EXPECT_TRUE(end.status.ok()) << end.status;
      run.preemptions += end.timings.preemptions;
      run.tokens.push_back(sink->tokens());
    }
    run.drafts = coordinator.Metrics().drafts;
  });
  return run;
}

TEST(DraftModelTest, ItsOwnDraftsAreAllAcceptedAndTokensAreThoseWithout) {
  for (const std::string model : {"llama3_gqa_bf16", "qwen2_14h_bf16"}) {
    const Outcome alone = Generate(model, {});
    EXPECT_EQ(alone.drafts.draft_tokens, 0);
    for (const int size : {1, 2, 3}) {
      const Outcome run = Generate(model, {.size = size, .draft = model});
      if (size < 3) {  // 3 ranks have other bits
        EXPECT_EQ(run.tokens, alone.tokens) << model << " " << size;
      }
      EXPECT_EQ(run.drafts.accepted_tokens, run.drafts.draft_tokens) << model << " " << size;
      EXPECT_GT(run.drafts.accepted_by_position[3], 40) << model << " " << size;
    }
  }
}

TEST(DraftModelTest, AnyOtherChangesNoToken) {
  const std::string model = "llama3_gqa_bf16";
  const Outcome alone = Generate(model, {});
  // Windows, experts, latents, wider layers, one KV head; of the same vocabulary.
  for (const std::string draft : {"gemma3_bf16", "mixtral_bf16", "deepseek_v2_bf16", "gemma4_bf16",
                                  "qwen2_14h_bf16", "llama_mqa_bf16", "llama32_tied_bf16"}) {
    for (const int size : {1, 2}) {
      const Outcome run = Generate(model, {.size = size, .draft = draft});
      EXPECT_EQ(run.tokens, alone.tokens) << draft << " " << size;
      EXPECT_GT(run.drafts.draft_tokens, 100) << draft << " " << size;
      EXPECT_LT(run.drafts.accepted_tokens, run.drafts.draft_tokens) << draft << " " << size;
    }
  }
}

TEST(DraftModelTest, PreemptedSequencesAndThoseWithWindowsAreDraftedFor) {
  Setting setting{.admission = Admission::kOptimistic, .num_kv_blocks = 14};
  const std::string model = "llama3_gqa_bf16";
  const Outcome alone = Generate(model, {});
  setting.draft = model;
  const Outcome preempted = Generate(model, setting);
  EXPECT_GT(preempted.preemptions, 0);
  EXPECT_EQ(preempted.tokens, alone.tokens);
  EXPECT_EQ(preempted.drafts.accepted_tokens, preempted.drafts.draft_tokens);
  EXPECT_GT(preempted.drafts.accepted_tokens, 100);
  for (const std::string windows : {"gemma3_bf16", "gpt_oss_bf16"}) {
    const Outcome without = Generate(windows, {.kv_groups = true, .num_kv_blocks = 200});
    const Outcome with =
        Generate(windows, {.draft = windows, .kv_groups = true, .num_kv_blocks = 200});
    EXPECT_EQ(with.tokens, without.tokens) << windows;
    EXPECT_EQ(with.drafts.accepted_tokens, with.drafts.draft_tokens) << windows;
    EXPECT_GT(with.drafts.accepted_tokens, 100) << windows;
  }
}

TEST(DraftModelTest, TheModelsMtpLayerChangesNoToken) {
  for (const std::string fixture : {"deepseek_v3_bf16", "glm4_moe_bf16"}) {
    const MtpCheckpoint checkpoint(fixture, MtpKind::kOwnTables);
    const Outcome alone = Generate(fixture, {});
    for (const int size : {1, 2}) {
      Setting setting{.size = size, .draft = checkpoint.dir(), .mtp = true};
      const Outcome run = Generate(checkpoint.dir(), setting);
      EXPECT_EQ(run.tokens, alone.tokens) << fixture << " " << size;
      EXPECT_GT(run.drafts.draft_tokens, 100) << fixture << " " << size;
      EXPECT_LT(run.drafts.accepted_tokens, run.drafts.draft_tokens) << fixture << " " << size;
    }
  }
}

TEST(DraftModelTest, AnMtpLayerThatIsRightHasItsDraftsAccepted) {
  for (const std::string fixture : {"deepseek_v3_bf16", "glm4_moe_bf16"}) {
    const MtpCheckpoint checkpoint(fixture, MtpKind::kRight);
    const Outcome alone = Generate(checkpoint.dir(), {});
    for (const int size : {1, 2}) {
      Setting setting{.size = size, .draft = checkpoint.dir(), .mtp = true};
      const Outcome run = Generate(checkpoint.dir(), setting);
      EXPECT_EQ(run.tokens, alone.tokens) << fixture << " " << size;
      EXPECT_EQ(run.drafts.accepted_tokens, run.drafts.draft_tokens) << fixture << " " << size;
      EXPECT_GT(run.drafts.accepted_by_position[3], 40) << fixture << " " << size;
    }
    Setting setting{.draft = checkpoint.dir(),
                    .mtp = true,
                    .admission = Admission::kOptimistic,
                    .num_kv_blocks = 14};
    const Outcome preempted = Generate(checkpoint.dir(), setting);
    EXPECT_GT(preempted.preemptions, 0);
    EXPECT_EQ(preempted.tokens, alone.tokens);
    EXPECT_EQ(preempted.drafts.accepted_tokens, preempted.drafts.draft_tokens);
    EXPECT_GT(preempted.drafts.accepted_tokens, 100);
  }
}

}  // namespace
}  // namespace bulkhead
