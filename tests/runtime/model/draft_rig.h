// Requests that are answered with drafts or without, on CPUs or on emulated GPUs.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/local_group.h"
#include "memory/recurrent_state.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/drafts.h"
#include "runtime/engine/rank_loop.h"
#include "runtime/model/kv_groups.h"
#include "tests/runtime/engine/recording_sink.h"
#include "tests/support/loaded_runner.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {

// A fixture's, or a path.
inline std::string Dir(const std::string& name) {
  return name.starts_with('/') ? name : BH_TEST_DATA "/models/" + name;
}

struct DraftSetting {
  int size = 1;
  std::string draft = "";  // a checkpoint; none: no drafts, or those of `lookup`
  bool mtp = false;        // the model's MTP layer, of that checkpoint
  int lookup = 0;          // tokens of prompt lookup, at least
  bool kv_groups = false;
  Admission admission = Admission::kReserve;
  int64_t num_kv_blocks = 64;
  // Instead of the host; then whether nothing is staged, and decodes are graphs (of one rank).
  std::function<RigDevice()> make_device = nullptr;
  bool graphs = false;
  bool grows = false;  // the KV pools, when all is loaded; with `graphs` they do in any case
  KvFormat kv_format = KvFormat::kF32;
  std::vector<Request> requests = {};
};

struct DraftOutcome {
  std::vector<std::vector<TokenId>> tokens;  // by request
  DraftTotals drafts;
  int preemptions = 0;
};

inline ModelLimits DraftRigLimits(const ModelConfig& config, const DraftSetting& setting) {
  ModelLimits limits = LoadedRunner::Limits(config);
  limits.num_kv_blocks = setting.num_kv_blocks;
  limits.kv_format = setting.kv_format;
  limits.caches_states = config.keeps_states();
  if (setting.make_device && !setting.graphs) limits.transport = Transport::kStaged;
  return limits;
}

// Rank 0's part: all requests at once.
inline DraftOutcome AnswerAll(const DraftSetting& setting, const Coordinator::Options& options,
                              StepRunner& steps, ControlBus* bus) {
  Coordinator coordinator(options);
  coordinator.SetServing();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const Request& request : setting.requests) {
    sinks.push_back(std::make_shared<RecordingSink>());
    EXPECT_TRUE(coordinator.Submit(request, sinks.back()).ok());
  }
  coordinator.BeginDrain(absl::InfiniteDuration());
  EXPECT_TRUE(RunRank(steps, bus, &coordinator, nullptr).ok());
  DraftOutcome run;
  for (const auto& sink : sinks) {
    const RequestEnd end = sink->WaitForEnd();
    EXPECT_TRUE(end.status.ok()) << end.status;
    run.preemptions += end.timings.preemptions;
    run.tokens.push_back(sink->tokens());
  }
  run.drafts = coordinator.Metrics().drafts;
  return run;
}

inline DraftOutcome Generate(const std::string& model, const DraftSetting& setting) {
  constexpr int kDrafts = 4;
  const ModelConfig config = LoadedRunner::ReadConfig(Dir(model));
  ModelLimits limits = DraftRigLimits(config, setting);
  if (setting.kv_groups) SetKvGroups(config, limits);
  const ShardPlan plan = *ShardPlan::Create(config, setting.size);
  const bool by_model = !setting.draft.empty();
  if (by_model || setting.lookup > 0) limits.max_drafts = limits.max_rejected = kDrafts;
  ModelConfig draft_config = LoadedRunner::ReadConfig(Dir(by_model ? setting.draft : model));
  if (setting.mtp) draft_config = MtpConfigOf(draft_config);
  ModelLimits draft_limits = DraftRigLimits(draft_config, setting);
  if (!setting.mtp) draft_limits.max_num_batched_tokens = DraftStepTokens(limits);
  draft_limits.max_model_len = limits.max_model_len - 40;
  draft_limits.max_rejected = kDrafts;
  draft_limits.caches_states = false;
  const ShardPlan draft_plan = *ShardPlan::Create(draft_config, setting.size);
  DraftOutcome run;
  auto groups = NewLocalGroups(setting.size);
  if (setting.graphs) groups[0] = NewSingleGroup();
  RunRanksOf(groups, [&](Group& group) {
    std::optional<LoadedRunner::Draft> draft;
    if (by_model) {
      draft.emplace(LoadedRunner::Draft{Dir(setting.draft), draft_plan, draft_limits,
                                        setting.graphs || setting.grows ? 3 : 0});
    }
    LoadedRunner runner(Dir(model), plan, limits, group, std::move(draft), setting.make_device);
    StepRunner& steps = runner.steps();
    ControlBus* const bus = setting.size > 1 ? &group.bus() : nullptr;
    if (!group.exchange().topology().coordinator()) {
      EXPECT_TRUE(RunRank(steps, bus, nullptr, nullptr).ok());
      return;
    }
    Coordinator::Options options;
    options.limits.Limits::operator=(limits);
    options.limits.max_num_queued_reqs = 100;
    options.limits.prefix_caching = true;
    options.limits.admission = setting.admission;
    options.limits.depth = steps.depth();
    options.limits.pads_decodes = runner->has_decode_graphs();
    options.limits.shares_samples = runner->shares_samples();
    if (config.keeps_states()) options.limits.state_tokens = kStateBlock;
    if (limits.max_drafts > 0) {
      options.limits.drafts = {.num_speculative_tokens = kDrafts,
                               .prompt_lookup_max = setting.lookup,
                               .prompt_lookup_min = setting.lookup,
                               .draft_model_len = by_model ? draft_limits.max_model_len : 0,
                               .mtp = setting.mtp,
                               .draft_state_tokens = draft_config.keeps_states() ? kStateBlock : 0};
    }
    options.now_ns = [] { return uint64_t{1}; };  // no step takes time: all may be drafted
    run = AnswerAll(setting, options, steps, bus);
  });
  return run;
}

}  // namespace bulkhead
