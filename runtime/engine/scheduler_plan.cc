// How the scheduler fills a step.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "runtime/engine/candidates.h"
#include "runtime/engine/decode_rows.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/shared_samples.h"

namespace bulkhead {
namespace {

constexpr uint64_t kShortPromptsSeenSteps =
    256;  // short prompts are expected for this many steps after the last one

// Whether the ranks know some token of the step only after its commit: it is sampled on the host,
// or drafts decide which row of its sequence it is from.
bool MustBeCommitted(const Step& step) {
  return std::any_of(step.samples.begin(), step.samples.end(), [&](const SampleRow& sample) {
    return SampleSourceOf(step.plan, sample.seq_index) == SampleSource::kHost ||
           !sample.drafted.empty();
  });
}

int PaddedTokens(const SchedulerLimits& limits, const internal::StepPlan& plan) {
  const int tokens = plan.token_ids_size();
  if (!limits.pads_decodes || tokens > plan.slot_size()) return tokens;
  return PaddedDecodeRows(tokens,
                          MaxDecodeRows(limits.max_num_seqs, limits.max_num_batched_tokens));
}

int64_t PromptLogitRows(const Step& step) {
  int64_t rows = 0;
  for (const auto& wanted : step.prompt_logits) rows += step.plan.num_tokens(wanted.seq_index);
  return rows;
}

// The positions [begin, end) of the sequence are the last tokens of the step.
void AddGivenRows(const Sequence& sequence, int64_t begin, int64_t end, Step& step) {
  const int64_t first_token = step.plan.token_ids_size() - (end - begin);
  for (const EmbeddingSpan& span : sequence.embeddings) {
    const int64_t from = std::max(begin, span.where.begin);
    const int64_t to = std::min(end, span.where.end);
    if (from >= to) continue;
    const auto width = static_cast<int64_t>(span.rows.size()) / (span.where.end - span.where.begin);
    const float* const rows = span.rows.data() + (from - span.where.begin) * width;
    step.given_rows.push_back(
        {first_token + from - begin,
         ConstMatrixView(reinterpret_cast<const std::byte*>(rows), DType::kF32, to - from, width)});
  }
}

bool PrecedesPtr(const Sequence* a, const Sequence* b) { return Precedes(*a, *b); }

}  // namespace

// The remaining prefill tokens of a step.
struct Scheduler::PrefillBudget {
  int total = 0;
  int left = 0;
  int kept_for_long = 0;  // part of them
  int given_to_long = 0;
  int64_t admitted = 0;                 // tokens of sequences that the step has admitted
  bool long_head_waits = false;         // it lacked blocks in this step
  std::vector<Sequence*> long_prompts;  // in prefill and without a row in this step, by precedence

  // Tokens kept for long prompts of a lower priority are available to `prompt`.
  int ShortPromptBudget(const Sequence& prompt) const {
    const bool keeps = !long_prompts.empty() && long_prompts.front()->priority >= prompt.priority;
    return left - (keeps ? kept_for_long : 0);
  }
};

std::optional<Step> Scheduler::PlanStep() {
  newly_admitted_.clear();
  works_on_grammars_ = false;
  if (num_in_flight() >= limits_.depth || sequences_.empty()) return std::nullopt;
  if (!in_flight_.empty() && (in_flight_.back().must_be_committed || AwaitsDrafts())) {
    return std::nullopt;
  }
  planned_rows_.clear();
  if (!drafts_round_) PrepareGrammars();  // before drafts use up the work
  if (!followed_.empty()) return std::nullopt;
  if (std::optional<Step> step = PlanDraftStep(); step.has_value()) return step;
  Step step;
  std::optional<double> decode_s;
  int num_decodes = 0;
  admits_ = true;
  lacked_blocks_ = false;
  do {
    const int left = PlanDecodes(limits_.max_num_batched_tokens, step);
    num_decodes = step.plan.token_ids_size();
    decode_s = DecodeSeconds(step);
    const int prompt_tokens =
        decode_s.has_value() ? prefill_pace_.PromptTokens(*decode_s, left) : left;
    if (prompt_tokens > 0) PlanPrefills(prompt_tokens, step);
  } while (planned_rows_.empty() && PrepareMoreGrammars() && followed_.empty());
  RecordPressure();
  if (planned_rows_.empty()) return std::nullopt;
  CompletePlan(step);
  PlannedStep& planned = in_flight_.emplace_back();
  planned.rows = std::move(planned_rows_);
  planned.must_be_committed = MustBeCommitted(step);
  const int tokens = step.plan.token_ids_size();
  if (tokens == std::ssize(step.samples)) planned.decode_tokens = tokens;
  planned.decode_s = decode_s;
  planned.prompt_tokens = tokens - num_decodes;
  planned_rows_ = {};
  return step;
}

void Scheduler::CompletePlan(Step& step) {
  step.plan.set_seq(++plan_seq_);
  step.plan.set_padded_tokens(PaddedTokens(limits_, step.plan));
  if (limits_.shares_samples) AddSharedSamples(step);
}

// Returns the remaining tokens.
int Scheduler::PlanDecodes(int budget, Step& step) {
  if (limits_.admission == Admission::kOptimistic) GrowDecodes();
  const size_t count = running_.size();
  planned_rows_.reserve(count + 8);
  step.samples.reserve(count);
  if (decode_cursor_ >= count) decode_cursor_ = 0;
  BeginDrafts(budget, limits_.drafts.by_model());
  for (size_t i = 0; i < count; ++i) {
    const size_t index = (decode_cursor_ + i) % count;
    if (!ReadyToDecode(*running_[index]) || !GrammarIsReady(*running_[index], {})) continue;
    if (budget == 0) {  // the next step starts with the first one left out
      decode_cursor_ = index;
      return 0;
    }
    const int drafted = AddDrafts(*running_[index]);
    AddRow(*running_[index], 1, step);
    budget -= 1 + drafted;
  }
  decode_cursor_ = 0;
  return budget;
}

bool Scheduler::ReadyToDecode(const Sequence& sequence) const {
  return sequence.state == SequenceState::kRunning && sequence.tokens_to_plan() == 1 &&
         !sequence.exhausted() && Lacks(sequence, sequence.planned_tokens + 1).none();
}

// Estimate without prompts; none if no sequence decodes. Counts sequences that lack a mask or
// blocks.
std::optional<double> Scheduler::DecodeSeconds(const Step& step) const {
  const bool decodes = std::any_of(running_.begin(), running_.end(), [](const Sequence* sequence) {
    return sequence->state == SequenceState::kRunning && !sequence->prefilling();
  });
  if (!decodes) return std::nullopt;
  const double measured_s = decode_cost_.Seconds(step.plan.token_ids_size());
  if (measured_s > 0) return measured_s;
  StepShape shape = ShapeOf(step.plan);
  shape.tokens = step.plan.token_ids_size();
  return absl::ToDoubleSeconds(prefill_pace_.estimate().Of(shape));
}

// Optimistic admission: every decode that enters a new block gets one, preempting a sequence of
// lower precedence if necessary.
void Scheduler::GrowDecodes() {
  std::vector<Sequence*> starved;
  for (Sequence* sequence : running_) {
    if (sequence->state != SequenceState::kRunning || sequence->tokens_to_plan() != 1 ||
        sequence->exhausted() || sequence->held_token.has_value() || ReadyToDecode(*sequence)) {
      continue;
    }
    if (!Grow(*sequence, sequence->planned_tokens + 1)) starved.push_back(sequence);
  }
  if (starved.empty()) return;
  admits_ = false;
  std::sort(starved.begin(), starved.end(), PrecedesPtr);
  for (Sequence* sequence : starved) {
    if (sequence->state == SequenceState::kRunning) MakeRoom(*sequence);
  }
}

void Scheduler::MakeRoom(Sequence& sequence) {
  while (!Grow(sequence, sequence.planned_tokens + 1)) {
    if (blocks_pending_release_ > 0) return;  // it skips this step: the next commit frees blocks
    Sequence* worst = nullptr;
    for (Sequence* candidate : running_) {
      if (candidate->state != SequenceState::kRunning) continue;
      if (worst == nullptr || Precedes(*worst, *candidate)) worst = candidate;
    }
    BH_CHECK(worst != nullptr);  // `sequence` itself is one
    Preempt(*worst);
    if (worst == &sequence) return;
  }
}

void Scheduler::PlanPrefills(int tokens, Step& step) {
  PrefillBudget budget;
  budget.total = tokens;
  budget.left = tokens;
  std::vector<Sequence*> short_prompts;
  for (Sequence* sequence : running_) {
    if (sequence->state != SequenceState::kRunning || !sequence->prefilling()) continue;
    (sequence->is_long ? budget.long_prompts : short_prompts).push_back(sequence);
  }
  std::sort(budget.long_prompts.begin(), budget.long_prompts.end(), PrecedesPtr);
  std::sort(short_prompts.begin(), short_prompts.end(), PrecedesPtr);
  if (budget.long_prompts.empty()) {
    long_deficit_eighths_ = 0;
  } else {
    long_deficit_eighths_ += tokens;
    budget.kept_for_long = static_cast<int>(std::min<int64_t>(tokens, long_deficit_eighths_ / 8));
  }
  for (Sequence* sequence : short_prompts) {
    ScheduleLongPrompts(budget, sequence->priority, step);
    budget.left -= AddChunk(*sequence, budget.ShortPromptBudget(*sequence), step);
  }
  int served = 0;
  do {
    AdmitSequences(budget, step);
    served = budget.given_to_long;
    ScheduleLongPrompts(budget, std::nullopt, step);
  } while (budget.given_to_long > served && budget.left > 0);
  long_deficit_eighths_ =
      std::max<int64_t>(0, long_deficit_eighths_ - int64_t{8} * budget.given_to_long);
}

// Gives all remaining tokens to long prompts in prefill, or only to those above a priority.
void Scheduler::ScheduleLongPrompts(PrefillBudget& budget, std::optional<int> above_priority,
                                    Step& step) {
  while (budget.left > 0 && !budget.long_prompts.empty()) {
    Sequence& first = *budget.long_prompts.front();
    if (above_priority.has_value() && first.priority <= *above_priority) return;
    const int given = AddChunk(first, budget.left, step);
    budget.left -= given;
    budget.given_to_long += given;
    budget.kept_for_long = std::max(0, budget.kept_for_long - given);
    budget.long_prompts.erase(budget.long_prompts.begin());
    if (budget.long_prompts.empty()) budget.kept_for_long = 0;
  }
}

void Scheduler::AdmitSequences(PrefillBudget& budget, Step& step) {
  while (admits_ && budget.left > 0 && HasSlot() && budget.admitted < kTokensAdmittedPerStep) {
    Sequence* short_head = waiting_.ShortHead();
    Sequence* long_head = waiting_.LongHead();
    const bool long_turn =
        long_head != nullptr && (short_head == nullptr || waiting_.LongGoesFirst());
    if (long_turn && !budget.long_head_waits && LongMayStart(budget)) {
      if (IsBeingCached(*long_head)) {
        budget.long_head_waits = true;
      } else if (TryAdmit(*long_head, 0)) {
        if (budget.long_prompts.empty()) {
          long_deficit_eighths_ = std::max<int64_t>(long_deficit_eighths_, budget.total);
          budget.kept_for_long =
              static_cast<int>(std::min<int64_t>(budget.left, long_deficit_eighths_ / 8));
        }
        budget.admitted += std::ssize(long_head->tokens);
        budget.long_prompts.insert(budget.long_prompts.begin(), long_head);
      } else {
        budget.long_head_waits = true;
        ReserveBlocks(*long_head);
      }
      continue;
    }
    if (short_head == nullptr) return;
    ScheduleLongPrompts(budget, short_head->priority, step);
    if (budget.ShortPromptBudget(*short_head) <= 0) return;
    if (IsBeingCached(*short_head)) return;
    const bool kept = long_turn && long_head->id == reserved_for_;
    if (!TryAdmit(*short_head, kept ? reserved_blocks_ : 0)) return;
    budget.admitted += std::ssize(short_head->tokens);
    budget.left -= AddChunk(*short_head, budget.ShortPromptBudget(*short_head), step);
  }
}

// Only one long prompt is in prefill at a time, unless one of higher priority arrives; and while
// short prompts arrive, the last quarter of the slots is kept for them.
bool Scheduler::LongMayStart(const PrefillBudget& budget) const {
  if (!budget.long_prompts.empty() && !Precedes(*waiting_.LongHead(), *budget.long_prompts.front()))
    return false;
  const bool short_prompts_come =
      last_short_step_.has_value() && plan_seq_ - *last_short_step_ < kShortPromptsSeenSteps;
  return !short_prompts_come || num_long_running_ < max_num_seqs_ - max_num_seqs_ / 4;
}

// Adds the next chunk of a prompt; returns its number of tokens, 0 if there is no room.
int Scheduler::AddChunk(Sequence& sequence, int max_tokens, Step& step) {
  int64_t tokens = std::min<int64_t>(sequence.tokens_to_plan(), max_tokens);
  if (sequence.prompt_logits != nullptr && sequence.planned_tokens < sequence.prompt_tokens) {
    // In a chunk all rows have logits or none: no chunk crosses the end of the prompt.
    tokens = std::min({tokens, sequence.prompt_tokens - sequence.planned_tokens,
                       kPromptLogitRowsOfStep - PromptLogitRows(step)});
  }
  tokens = std::min(tokens, NextSnapshot(sequence) - sequence.planned_tokens);
  // A token whose logits a grammar masks waits for the mask, like a decode; those before it do not.
  if (tokens == sequence.tokens_to_plan() && !GrammarIsReady(sequence, {})) --tokens;
  if (tokens <= 0) return 0;
  AddRow(sequence, static_cast<int>(tokens), step);
  return static_cast<int>(tokens);
}

// Adds the next tokens of the sequence, followed by its drafts.
void Scheduler::AddRow(Sequence& sequence, int num_tokens, Step& step) {
  const int64_t begin = sequence.planned_tokens;
  const int64_t end = begin + num_tokens;
  BH_CHECK(begin >= sequence.blocks_cached * limits_.block_tokens);  // shared: never written
  PlannedRow row;
  row.sequence = &sequence;
  row.begin = begin;
  row.end = end;
  row.ends = end == sequence.known_tokens() && sequence.stop_rule.stopping().max_tokens == 0;
  const bool samples = end == sequence.known_tokens() && !row.ends;
  const auto drafted = static_cast<int>(sequence.drafts.size());
  row.num_samples = samples ? 1 + drafted : 0;
  BH_CHECK(samples || drafted == 0);
  row.has_prompt_logits = sequence.prompt_logits != nullptr && begin < sequence.prompt_tokens;
  row.has_hidden_state = row.ends && sequence.last_hidden_state != nullptr;

  internal::StepPlan& plan = step.plan;
  const int seq_index = plan.slot_size();
  plan.add_slot(sequence.slot);
  plan.add_num_tokens(num_tokens + drafted);
  plan.add_start_position(static_cast<int32_t>(begin));
  const int last_rows = row.has_hidden_state ? 1 : row.num_samples;
  plan.add_num_logits(row.has_prompt_logits ? num_tokens : last_rows);
  if (sequence.adapter != 0) {
    plan.mutable_adapter()->Resize(seq_index, 0);
    plan.add_adapter(sequence.adapter);
  }
  const auto committed = static_cast<int64_t>(sequence.tokens.size());
  for (int64_t at = begin; at < end; ++at) {
    plan.add_token_ids(at < committed ? sequence.tokens[at] : kLastSampled);
  }
  AddGivenRows(sequence, begin, end, step);
  for (const TokenId draft : sequence.drafts) plan.add_token_ids(draft);
  AddTableChanges(sequence, end + drafted, limits_.num_kv_groups(), step);
  if (pool_.snapshots() != nullptr) row.snapshot = AddSnapshots(sequence, end, plan);
  if (row.has_prompt_logits) step.prompt_logits.push_back({seq_index, sequence.prompt_logits});
  if (row.has_hidden_state) step.hidden_states.push_back({seq_index, sequence.last_hidden_state});
  for (int i = 0; i < row.num_samples; ++i) {
    AddSample(sequence, seq_index, end + i, i, step);
    step.samples.back().num_logprobs = sequence.num_logprobs;
  }
  if (samples) ++sequence.pending_samples;
  const auto first_sample = step.samples.end() - row.num_samples;
  const bool on_device = samples && !row.has_prompt_logits;
  plan.add_from_candidates(on_device &&
                           std::all_of(first_sample, step.samples.end(), SamplesFromCandidates));
  plan.add_from_row(on_device && std::all_of(first_sample, step.samples.end(), SamplesFromRow));
  prompt_tokens_total_ += std::max<int64_t>(0, std::min(end, sequence.prompt_tokens) - begin);
  sequence.planned_tokens = end;
  ++sequence.in_flight;
  planned_rows_.push_back(row);
}

// The next position in a prompt after which states are kept.
int64_t Scheduler::NextSnapshot(const Sequence& sequence) const {
  if (pool_.snapshots() == nullptr) return std::numeric_limits<int64_t>::max();
  const auto last = static_cast<int64_t>(sequence.tokens.size()) - 1;  // always computed
  for (const int64_t border :
       {sequence.branch_tokens, last / limits_.state_tokens * limits_.state_tokens}) {
    if (border > sequence.planned_tokens) return border;
  }
  return std::numeric_limits<int64_t>::max();
}

// Adds the snapshots of a row that ends at `end`; returns the one that it writes, or -1.
int Scheduler::AddSnapshots(Sequence& sequence, int64_t end, internal::StepPlan& plan) {
  SnapshotPool& snapshots = *pool_.snapshots();
  if (const int snapshot = std::exchange(sequence.restore_snapshot, -1); snapshot >= 0) {
    plan.add_restore_slot(sequence.slot);
    plan.add_restore_snapshot(snapshot);
    snapshots.Unpin(snapshot);  // steps run in the order of their plans
  }
  const bool keeps = end == NextSnapshot(sequence) || end == sequence.known_tokens();
  if (!keeps || end % limits_.state_tokens != 0) return -1;
  const int snapshot = snapshots.Take();
  if (snapshot < 0) return -1;
  plan.add_save_slot(sequence.slot);
  plan.add_save_snapshot(snapshot);
  return snapshot;
}

}  // namespace bulkhead
