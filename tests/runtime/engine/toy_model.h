// A toy model for engine tests: the next token is a hash of the request's salt and all previous
// tokens. Its KV cache holds the running hash in paged blocks, so a wrong block table, position or
// input token, or a block shared with another prefix or salt, changes the sampled tokens. KV groups
// with a window hold it too, where the window shows it. A toy draft model holds it in blocks of its
// own, and drafts what the toy samples, or is to be wrong now and then. A toy MTP layer has the
// hash behind the next token there, which it makes of the toy's of the step before it.
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
#include "runtime/engine/logits_processor.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

inline constexpr int kToyVocab = 50;
inline constexpr TokenId kToyEos = 0;

// The hash of an empty history.
uint64_t ToyStart(const std::string& cache_salt);
// The hash of a history continued with `token`.
uint64_t ToyHash(uint64_t before, TokenId token);
// The token sampled after a history.
TokenId ToyDraw(uint64_t history, const std::vector<TokenId>& banned);
// The same from logits that the history gives, as `processor` changes them.
TokenId ToyDraw(uint64_t history, const std::vector<TokenId>& banned,
                const LogitsProcessor& processor, absl::Span<const TokenId> drafted = {});
// The token after `tokens`, prompt and generated ones, whose hash is `history`: one or the other.
TokenId ToyDrawNext(uint64_t history, const std::vector<TokenId>& banned,
                    const LogitsParams& params, absl::Span<const TokenId> tokens,
                    int64_t prompt_tokens);
// Any of penalties, biases, allowed ids, bad words and a grammar, by `choice`; off for some.
LogitsParams ToyLogitsParams(uint32_t choice);

struct ToyResult {
  std::vector<TokenId> tokens;
  FinishReason reason = FinishReason::kMaxTokens;
};
// The expected result of a request, computed alone. Emitted tokens count, but are not repeated.
ToyResult ToyGenerate(const Request& request, const std::vector<TokenId>& eos_ids,
                      int max_model_len);

// Which of the toy draft model's drafts are wrong; of some it has no token to give.
enum class DraftErrors { kNone, kSome, kAll };

// Runs plans at submission; adds a test failure (and continues) if a plan breaks a rule. With depth
// 2, if the limits have it, it knows a slot's last token only if the host did not sample it, like a
// real rank.
class ToyRunner final : public StepRunner {
 public:
  explicit ToyRunner(const SchedulerLimits& limits);
  int depth() const override { return limits_.depth; }
  absl::Status Submit(Step step) override;
  absl::StatusOr<StepResult> Collect() override;
  // Initial hash of the slot's sequence: ToyStart of its salt.
  void SetStart(int slot, uint64_t history) { starts_[slot] = history; }

  void SetDraftErrors(DraftErrors errors) { draft_errors_ = errors; }

  int64_t steps() const { return steps_; }
  int64_t draft_steps() const { return draft_steps_; }
  // Steps with an input token that was unknown when they were planned.
  int64_t steps_planned_ahead() const { return steps_planned_ahead_; }
  // The content of the cache.
  const std::vector<std::vector<uint64_t>>& blocks() const { return blocks_; }

 private:
  void CheckPlan(const internal::StepPlan& plan);
  StepResult RunDraft(const Step& step);
  uint64_t MtpHash(int slot, int64_t begin);
  void RecordRows(const internal::StepPlan& plan);
  GeneratedToken Draft(uint64_t history, const SampleRow& row) const;
  void CheckDraft(const internal::StepPlan& plan);
  uint64_t& Cell(int slot, int64_t position, int group = 0);
  int64_t FirstSeen(int group, int64_t position) const;
  // Whether what the windows of the sequence's first token show is what group 0 has.
  void CheckWindows(int slot, int64_t begin);
  void CheckState(int slot, int64_t begin);
  void CheckDraftState(int slot, int64_t begin, bool behind_draft);
  // The hash after the sequence's last token of this step.
  uint64_t RunSequence(const internal::StepPlan& plan, int seq_index, int first_token);

  SchedulerLimits limits_;
  int64_t steps_ = 0;
  int64_t steps_planned_ahead_ = 0;
  std::vector<std::vector<std::vector<BlockId>>> tables_;  // [group][slot][index]
  std::vector<std::vector<uint64_t>> blocks_;              // [block][token]
  std::vector<std::vector<uint64_t>> draft_blocks_;        // the draft model's
  DraftErrors draft_errors_ = DraftErrors::kSome;
  int64_t draft_steps_ = 0;
  struct Rows {
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::vector<Rows> last_rows_;  // [slot] of the step before
  bool last_is_draft_ = false;
  std::vector<TokenId> last_sampled_;  // [slot], -1: only on rank 0's host
  std::vector<uint64_t> starts_;       // [slot]
  // Of a model with states: behind the last whole block of them, of slots and of snapshots.
  struct State {
    int64_t end = 0;
    uint64_t hash = 0;
    bool operator==(const State&) const = default;
  };
  struct DraftState {
    State whole;
    int64_t computed = 0;  // positions below it
  };
  std::vector<State> states_;
  std::vector<DraftState> draft_states_;  // [slot]
  std::vector<State> snapshots_;
  std::deque<StepResult> results_;  // in flight
};

// Plans, runs and commits like a rank loop that keeps `depth` steps in flight.
class ToyLoop {
 public:
  explicit ToyLoop(const SchedulerLimits& limits, PrefixCache::Hash hash = PrefixCache::GoodHash);

  // Like the scheduler's, and passes the salt to the toy; without one scheduler().Submit is
  // equivalent.
  absl::StatusOr<SequenceId> Submit(Request request);
  // One round: plans and runs as many steps as the depth allows, commits the oldest.
  std::vector<Emission> Step();
  // Its two halves.
  void PlanAndRun();
  std::vector<Emission> CommitOldest();
  // Runs until nothing is left; collects the emissions, by sequence.
  void RunToEnd();
  const Emission* EndOf(SequenceId id) const;
  const std::vector<TokenId>& TokensOf(SequenceId id) { return tokens_[id]; }
  // The plan of the last planned step.
  const internal::StepPlan& plan() const { return plan_; }
  Scheduler& scheduler() { return scheduler_; }
  KvBlockPool& pool() { return pool_; }
  ToyRunner& runner() { return runner_; }

 private:
  void Record(absl::Span<const Emission> emissions);

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
