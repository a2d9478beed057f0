#include "launcher/group/rank_engine.h"

#include <algorithm>
#include <string>

#include "memory/kv_format_name.h"
#include "memory/recurrent_state.h"
#include "runtime/model/footprint.h"

namespace bulkhead {

ReportFacts RankEngine::facts() const {
  return {.kv_cache_dtype = std::string(KvFormatName(source.formats.kv_format)),
          .weight_dtype = WeightFormatsText(source.formats.weights),
          .device_allocations_after_ready =
              ledger == nullptr ? 0 : static_cast<uint64_t>(ledger->refused_after_seal()),
          .host = host};
}

StepRunner& RankEngine::steps() {
  if (draft != nullptr) return *draft->steps;
  return *runner;
}

CommLimits CommLimitsOf(const RankEngine& engine) {
  const CommLimits limits = CommLimitsOf(*engine.plan, engine.limits);
  if (engine.draft == nullptr) return limits;
  return Larger(limits, CommLimitsOf(engine.draft->plan, engine.draft->limits));
}

SchedulerLimits SchedulerLimitsOf(const RankEngine& engine, const EngineOptions& options,
                                  int max_num_queued_reqs) {
  SchedulerLimits limits{engine.limits};
  limits.max_num_queued_reqs = max_num_queued_reqs;
  limits.admission = options.admission;
  limits.policy = options.scheduling_policy;
  limits.prefix_caching = options.enable_prefix_caching;
  limits.drafts = options.speculative.drafts;
  if (engine.draft != nullptr) {
    const bool keeps_states = engine.source.draft->config.model.keeps_states();
    limits.drafts.draft_model_len = engine.draft->limits.max_model_len;
    limits.drafts.draft_state_tokens = keeps_states ? kStateBlock : 0;
  }
  const int state_tokens = std::max(kStateBlock, limits.block_tokens);  // both powers of two
  limits.state_tokens = engine.source.config.model.keeps_states() ? state_tokens : 0;
  if (engine.runner != nullptr) {  // otherwise nothing runs yet
    limits.depth = engine.draft != nullptr ? engine.draft->steps->depth() : engine.runner->depth();
    limits.pads_decodes = engine.runner->has_decode_graphs();
    limits.shares_samples = engine.runner->shares_samples();
  }
  return limits;
}

InstrumentedStepRunner InstrumentedStepRunnerOf(RankEngine& engine, RankFigures& figures,
                                                RankStepStats* board) {
  return InstrumentedStepRunner(engine.steps(), *engine.comm, CommLimitsOf(engine).max_sum_elements,
                                figures, board,
                                engine.device->host_memory() ? nullptr : engine.device.get(),
                                engine.step_figures.get(), engine.watch.get());
}

Coordinator::Options CoordinatorOptions(const RankEngine& engine, const SchedulerLimits& limits) {
  Coordinator::Options options;
  options.limits = limits;
  options.eos_ids.assign(engine.source.config.model.eos_token_ids.begin(),
                         engine.source.config.model.eos_token_ids.end());
  options.tokenizer = engine.tokenizer.get();
  options.costs = [&engine] {
    StepCosts costs;
    if (engine.device->host_memory()) costs.collective_ns = engine.comm->seconds() * 1e9;
    costs.sampling_ns = engine.runner->sampling_ns();
    if (engine.draft != nullptr) costs.sampling_ns += engine.draft->runner->sampling_ns();
    return costs;
  };
  return options;
}

}  // namespace bulkhead
