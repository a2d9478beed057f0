// A toy model for engine tests: the next token is a hash of the request's salt and of all tokens
// before it. Its KV cache holds the running hash in paged blocks, so a wrong block table, position
// or input token, or a block shared with another beginning or salt, changes what is drawn.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

inline constexpr int kToyVocab = 50;
inline constexpr TokenId kToyEos = 0;

// The hash of an empty history.
uint64_t ToyStart(const std::string& cache_salt);
// The hash of a history that goes on with `token`.
uint64_t ToyHash(uint64_t before, TokenId token);
// The token drawn after a history.
TokenId ToyDraw(uint64_t history, const std::vector<TokenId>& banned);

struct ToyResult {
  std::vector<TokenId> tokens;
  FinishReason reason = FinishReason::kMaxTokens;
};
// What a request must give, computed alone. Emitted tokens count, but are not repeated.
ToyResult ToyGenerate(const Request& request, const std::vector<TokenId>& eos_ids,
                      int max_model_len);

// Runs plans, at their submission; throws a test failure (and goes on) when a plan breaks a rule.
// Of depth 2 when the limits are: then it knows a slot's newest token if that was drawn from
// candidates, as every rank does.
class ToyRunner final : public StepRunner {
 public:
  explicit ToyRunner(const SchedulerLimits& limits);
  int depth() const override { return limits_.depth; }
  absl::Status Submit(Step step) override;
  absl::StatusOr<StepResult> Collect() override;
  // What the slot's sequence begins with: ToyStart of its salt.
  void SetStart(int slot, uint64_t history) { starts_[slot] = history; }

  int64_t steps() const { return steps_; }
  // Those with an input that was not known when the step was planned.
  int64_t steps_planned_ahead() const { return steps_planned_ahead_; }
  // What is in the cache.
  const std::vector<std::vector<uint64_t>>& blocks() const { return blocks_; }

 private:
  void CheckPlan(const internal::StepPlan& plan);
  uint64_t& Cell(int slot, int64_t position);
  // The hash after the sequence's last token of this step.
  uint64_t RunSequence(const internal::StepPlan& plan, int seq_index, int first_token);

  SchedulerLimits limits_;
  int64_t steps_ = 0;
  int64_t steps_planned_ahead_ = 0;
  std::vector<std::vector<BlockId>> tables_;   // [slot][index]
  std::vector<std::vector<uint64_t>> blocks_;  // [block][token]
  std::vector<TokenId> last_sampled_;          // [slot], -1: on rank 0's host alone
  std::vector<uint64_t> starts_;               // [slot]
  std::deque<StepResult> results_;             // in flight
};

// Plans, runs and commits like a rank loop that keeps `depth` steps in flight.
class ToyLoop {
 public:
  explicit ToyLoop(const SchedulerLimits& limits, PrefixCache::Hash hash = PrefixCache::GoodHash);

  // As the scheduler's, and the toy knows of the salt; without one scheduler().Submit does as well.
  absl::StatusOr<SequenceId> Submit(Request request);
  // One round: plans and runs as many steps as the depth allows, commits the oldest.
  std::vector<Emission> Step();
  // Its two halves.
  void PlanAndRun();
  std::vector<Emission> CommitOldest();
  // Rounds until nothing is left; collects what was emitted, by sequence.
  void RunToEnd();
  const Emission* EndOf(SequenceId id) const;
  const std::vector<TokenId>& TokensOf(SequenceId id) { return tokens_[id]; }
  // The plan of the last step that was planned.
  const internal::StepPlan& plan() const { return plan_; }
  Scheduler& scheduler() { return scheduler_; }
  KvBlockPool& pool() { return pool_; }

 private:
  SchedulerLimits limits_;
  KvBlockPool pool_;
  Scheduler scheduler_;
  ToyRunner runner_;
  internal::StepPlan plan_;
  std::map<SequenceId, std::vector<TokenId>> tokens_;
  std::map<SequenceId, Emission> ends_;
  std::map<SequenceId, uint64_t> starts_;
};

SchedulerLimits ToyLimits();
Request ToyRequest(int prompt_tokens, int max_tokens, int salt = 0);

}  // namespace bulkhead
