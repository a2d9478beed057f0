// Small checkpoints drafting for each other: the tokens are those of the model alone, and a model
// that drafts for itself is always right.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference/reference_backend.h"
#include "tests/runtime/model/draft_rig.h"
#include "tests/runtime/model/mtp_checkpoint.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

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

DraftOutcome Answer(const std::string& model, DraftSetting setting) {
  setting.requests = Requests(model);
  return Generate(model, setting);
}

TEST(DraftModelTest, ItsOwnDraftsAreAllAcceptedAndTokensAreThoseWithout) {
  for (const std::string model : {"llama3_gqa_bf16", "qwen2_14h_bf16"}) {
    const DraftOutcome alone = Answer(model, {});
    EXPECT_EQ(alone.drafts.draft_tokens, 0);
    for (const int size : {1, 2, 3}) {
      const DraftOutcome run = Answer(model, {.size = size, .draft = model});
      if (size < 3) {  // 3 ranks have other bits
        EXPECT_EQ(run.tokens, alone.tokens) << model << " " << size;
      }
      EXPECT_EQ(run.drafts.accepted_tokens, run.drafts.draft_tokens) << model << " " << size;
      EXPECT_GT(run.drafts.accepted_by_position[3], 40) << model << " " << size;
    }
  }
}

class CountingBackend final : public ReferenceBackend {
 public:
  CountingBackend(Device& device, int& workspaces)
      : ReferenceBackend(device, Order::kDouble, ActivationDType::kF32), workspaces_(workspaces) {}
  void SetWorkspace(std::byte*, const StepLimits&, const HeadLayout&) override { ++workspaces_; }

 private:
  int& workspaces_;
};

TEST(DraftModelTest, TheWorkspaceIsSetWhereTheModelIsAnotherThanInTheStepBefore) {
  const std::string dir = Dir("llama3_gqa_bf16");
  const ModelConfig config = LoadedRunner::ReadConfig(dir);
  const ModelLimits limits = LoadedRunner::Limits(config);
  const ShardPlan plan = *ShardPlan::Create(config, 1);
  const auto group = NewSingleGroup();
  int workspaces = 0;
  LoadedRunner runner(dir, plan, limits, *group, LoadedRunner::Draft{dir, plan, limits}, [&] {
    RigDevice rig;
    rig.device = NewHostDevice(0);
    rig.backend = std::make_unique<CountingBackend>(*rig.device, workspaces);
    return rig;
  });
  std::vector<int> set;
  for (const bool draft : {false, true, true, true, false, false, true}) {
    Step step = MakeStep(limits, set.size() + 1, {{0, 0, {5, 6, 7}, 1}});
    step.plan.set_draft(draft);
    const int before = workspaces;
    EXPECT_TRUE(RunStep(runner.steps(), std::move(step)).ok());
    set.push_back(workspaces - before);
  }
  EXPECT_EQ(set, (std::vector<int>{1, 1, 0, 0, 1, 0, 1}));
}

TEST(DraftModelTest, AnyOtherChangesNoToken) {
  const std::string model = "llama3_gqa_bf16";
  const DraftOutcome alone = Answer(model, {});
  // Windows, experts, latents, states, wider layers, one KV head; of the same vocabulary.
  for (const std::string draft :
       {"gemma3_bf16", "mixtral_bf16", "deepseek_v2_bf16", "gemma4_bf16", "qwen3_next_bf16",
        "qwen2_14h_bf16", "llama_mqa_bf16", "llama32_tied_bf16"}) {
    for (const int size : {1, 2}) {
      const DraftOutcome run = Answer(model, {.size = size, .draft = draft});
      EXPECT_EQ(run.tokens, alone.tokens) << draft << " " << size;
      EXPECT_GT(run.drafts.draft_tokens, 100) << draft << " " << size;
      EXPECT_LT(run.drafts.accepted_tokens, run.drafts.draft_tokens) << draft << " " << size;
    }
  }
}

TEST(DraftModelTest, PreemptedSequencesAndThoseWithWindowsAreDraftedFor) {
  DraftSetting setting{.admission = Admission::kOptimistic, .num_kv_blocks = 14};
  const std::string model = "llama3_gqa_bf16";
  const DraftOutcome alone = Answer(model, {});
  setting.draft = model;
  const DraftOutcome preempted = Answer(model, setting);
  EXPECT_GT(preempted.preemptions, 0);
  EXPECT_EQ(preempted.tokens, alone.tokens);
  EXPECT_EQ(preempted.drafts.accepted_tokens, preempted.drafts.draft_tokens);
  EXPECT_GT(preempted.drafts.accepted_tokens, 100);
  for (const std::string windows : {"gemma3_bf16", "gpt_oss_bf16"}) {
    const DraftOutcome without = Answer(windows, {.kv_groups = true, .num_kv_blocks = 200});
    const DraftOutcome with =
        Answer(windows, {.draft = windows, .kv_groups = true, .num_kv_blocks = 200});
    EXPECT_EQ(with.tokens, without.tokens) << windows;
    EXPECT_EQ(with.drafts.accepted_tokens, with.drafts.draft_tokens) << windows;
    EXPECT_GT(with.drafts.accepted_tokens, 100) << windows;
  }
}

// Prompts and answers go over the borders of blocks of states, where those of the cache start.
TEST(DraftModelTest, DraftsOfAModelWithStatesChangeNoToken) {
  for (const std::string model : {"qwen3_next_bf16", "qwen3_5_bf16"}) {
    // Of two ids half of the draft tokens are right.
    const auto answer = [&](DraftSetting setting) {
      setting.requests = Requests(model);
      for (Request& request : setting.requests) {
        request.logits.allowed = {5, 6};
        request.stopping.max_tokens += 40;
      }
      return Generate(model, setting);
    };
    const DraftOutcome alone = answer({});
    for (const int size : {1, 2}) {
      const DraftOutcome run = answer({.size = size, .lookup = 1});
      EXPECT_EQ(run.tokens, alone.tokens) << model << " " << size;
      EXPECT_GT(run.drafts.accepted_tokens, 100) << model << " " << size;
      EXPECT_LT(run.drafts.accepted_tokens, run.drafts.draft_tokens) << model << " " << size;
    }
    DraftSetting few{.lookup = 1, .admission = Admission::kOptimistic, .num_kv_blocks = 18};
    const DraftOutcome preempted = answer(few);
    EXPECT_GT(preempted.preemptions, 0) << model;
    EXPECT_EQ(preempted.tokens, alone.tokens) << model;
  }
}

// Its states go no further than what is right, in sequences that start anew, too.
TEST(DraftModelTest, AModelWithStatesThatDraftsForItselfIsAlwaysRight) {
  for (const std::string model : {"qwen3_next_bf16", "qwen3_5_bf16"}) {
    const auto answer = [&](DraftSetting setting) {
      setting.requests = Requests(model);
      for (Request& request : setting.requests) request.stopping.max_tokens += 40;
      return Generate(model, setting);
    };
    const DraftOutcome alone = answer({});
    const DraftSetting preempting{
        .draft = model, .admission = Admission::kOptimistic, .num_kv_blocks = 18};
    for (const DraftSetting& setting :
         {DraftSetting{.draft = model}, DraftSetting{.size = 2, .draft = model}, preempting}) {
      const DraftOutcome run = answer(setting);
      EXPECT_EQ(run.preemptions > 0, setting.num_kv_blocks == 18) << model;
      EXPECT_EQ(run.tokens, alone.tokens) << model;
      EXPECT_EQ(run.drafts.accepted_tokens, run.drafts.draft_tokens) << model;
      EXPECT_GT(run.drafts.accepted_by_position[3], 40) << model;
    }
  }
}

TEST(DraftModelTest, ADraftModelsStatesHaveRoomForWhatIsRejected) {
  const std::string dir = Dir("qwen3_5_bf16");
  const ModelConfig config = LoadedRunner::ReadConfig(dir);
  ModelLimits limits = LoadedRunner::Limits(config);
  limits.max_rejected = 4;
  const ShardPlan plan = *ShardPlan::Create(config, 1);
  const auto group = NewSingleGroup();
  LoadedRunner runner(dir, plan, limits, *group);
  uint64_t seq = 0;
  const auto logits = [&](int slot, int begin, std::vector<int32_t> ids) {
    return RunHere(*runner, MakeStep(limits, ++seq, {{slot, begin, std::move(ids), 1}})).logits;
  };
  logits(0, 0, {5, 6, 7, 8, 9, 10});
  for (int at = 6; at < 10; ++at) logits(0, at, {300 + at});
  const std::vector<float> again = logits(0, 6, {11, 12});
  EXPECT_EQ(again, logits(1, 0, {5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST(DraftModelTest, TheMtpLayerOfAModelWithStatesChangesNoToken) {
  for (const std::string fixture : {"qwen3_next_bf16", "qwen3_5_bf16", "qwen3_5_moe_bf16"}) {
    const MtpCheckpoint other(fixture, MtpKind::kSharedTables);
    const MtpCheckpoint right(fixture, MtpKind::kRight);
    for (const auto* checkpoint : {&other, &right}) {
      const DraftOutcome alone = Answer(checkpoint->dir(), {});
      for (const int size : {1, 2}) {
        DraftSetting setting{.size = size, .draft = checkpoint->dir(), .mtp = true};
        const DraftOutcome run = Answer(checkpoint->dir(), setting);
        EXPECT_EQ(run.tokens, alone.tokens) << fixture << " " << size;
        EXPECT_GT(run.drafts.draft_tokens, 100) << fixture << " " << size;
        EXPECT_EQ(run.drafts.accepted_tokens == run.drafts.draft_tokens, checkpoint == &right)
            << fixture << " " << size;
      }
    }
  }
}

TEST(DraftModelTest, TheModelsMtpLayerChangesNoToken) {
  for (const std::string fixture : {"deepseek_v3_bf16", "glm4_moe_bf16"}) {
    const MtpCheckpoint checkpoint(fixture, MtpKind::kOwnTables);
    const DraftOutcome alone = Answer(fixture, {});
    for (const int size : {1, 2}) {
      DraftSetting setting{.size = size, .draft = checkpoint.dir(), .mtp = true};
      const DraftOutcome run = Answer(checkpoint.dir(), setting);
      EXPECT_EQ(run.tokens, alone.tokens) << fixture << " " << size;
      EXPECT_GT(run.drafts.draft_tokens, 100) << fixture << " " << size;
      EXPECT_LT(run.drafts.accepted_tokens, run.drafts.draft_tokens) << fixture << " " << size;
    }
  }
}

TEST(DraftModelTest, AnMtpLayerThatIsRightHasItsDraftsAccepted) {
  for (const std::string fixture : {"deepseek_v3_bf16", "glm4_moe_bf16"}) {
    const MtpCheckpoint checkpoint(fixture, MtpKind::kRight);
    const DraftOutcome alone = Answer(checkpoint.dir(), {});
    for (const int size : {1, 2}) {
      DraftSetting setting{.size = size, .draft = checkpoint.dir(), .mtp = true};
      const DraftOutcome run = Answer(checkpoint.dir(), setting);
      EXPECT_EQ(run.tokens, alone.tokens) << fixture << " " << size;
      EXPECT_EQ(run.drafts.accepted_tokens, run.drafts.draft_tokens) << fixture << " " << size;
      EXPECT_GT(run.drafts.accepted_by_position[3], 40) << fixture << " " << size;
    }
    DraftSetting setting{.draft = checkpoint.dir(),
                         .mtp = true,
                         .admission = Admission::kOptimistic,
                         .num_kv_blocks = 14};
    const DraftOutcome preempted = Answer(checkpoint.dir(), setting);
    EXPECT_GT(preempted.preemptions, 0);
    EXPECT_EQ(preempted.tokens, alone.tokens);
    EXPECT_EQ(preempted.drafts.accepted_tokens, preempted.drafts.draft_tokens);
    EXPECT_GT(preempted.drafts.accepted_tokens, 100);
  }
}

}  // namespace
}  // namespace bulkhead
