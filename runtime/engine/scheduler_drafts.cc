// Drafts (speculative decoding): which sequences a step verifies drafts for, how long these are,
// and the steps of the draft model that make them.
#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "memory/recurrent_state.h"
#include "runtime/engine/candidates.h"
#include "runtime/engine/scheduler.h"

namespace bulkhead {
namespace {

// A draft model gets at most this many unseen tokens per token that may still be generated: each
// takes a small part of a step, and a draft saves a part of one.
constexpr int64_t kUnseenPerToken = 16;
// If its steps are not worth their time, one is made now and then to notice a change.
constexpr double kTrialsPerStep = 1.0 / 40;
constexpr double kMaxDraftTrials = 2;

}  // namespace

// Called before the decodes of a step of `budget` tokens are planned, and before the draft model's
// rounds that precede it. All decodes have precedence over any draft.
void Scheduler::BeginDrafts(int budget, bool verifies_only) {
  draft_tokens_left_ = 0;
  if (limits_.drafts.num_speculative_tokens == 0) return;
  int sequences = 0;
  bool has_prompts = waiting_.size() > 0 && HasSlot();
  for (const Sequence* sequence : running_) {
    if (sequence->state == SequenceState::kRunning) has_prompts |= sequence->prefilling();
    sequences += ReadyToDecode(*sequence) ? 1 : 0;
  }
  const int left = std::max(0, budget - sequences);
  draft_tokens_left_ = has_prompts && !verifies_only ? left / kDraftsBesidePrompts : left;
  lookup_places_left_ = kPlacesOfStep;
  num_decodes_ = sequences;
  verify_cost_ = decode_cost_.OfAnotherEach(sequences);
}

void Scheduler::RecordStepTime(double seconds) {
  const PlannedStep& step = in_flight_.front();
  if (step.decode_s.has_value() && step.prompt_tokens > 0) {
    prefill_pace_.Record(*step.decode_s, step.prompt_tokens, seconds);
  }
  const double mean_s = decode_cost_.MeanSeconds();
  if (step.decode_tokens > 0) {
    seconds =
        (step.by_draft_model ? draft_cost_ : decode_cost_).Record(step.decode_tokens, seconds);
  }
  if (!step.by_draft_model)
    draft_trials_ = std::min(kMaxDraftTrials, draft_trials_ + kTrialsPerStep);
  if (mean_s == 0 || step.follows) return;
  draft_allowance_.Add(seconds / mean_s * (step.by_draft_model ? -1 : DraftAllowance::kShare));
}

// After the commit of a step of `num_rows` sequences; `before`: draft_totals_.
void Scheduler::RecordSaving(const DraftTotals& before, size_t num_rows) {
  const auto accepted = static_cast<double>(draft_totals_.accepted_tokens - before.accepted_tokens);
  const auto drafted = static_cast<double>(draft_totals_.draft_tokens - before.draft_tokens);
  if (drafted == 0) return;
  // A successful trial is repeated until the acceptance rate reflects it.
  if (accepted < drafted || draft_acceptance_.rate() > 0.5) {
    draft_trials_ = std::max(0.0, draft_trials_ - 1);
  }
  draft_acceptance_.Record(static_cast<int>(drafted), static_cast<int>(accepted), 0);
  // A token of one sequence is worth its part of a step.
  draft_allowance_.Add((accepted - drafted * verify_cost_) / static_cast<double>(num_rows));
}

// How many tokens can be verified with the next token of the sequence, which is ready to decode.
// They only use blocks that it holds.
int Scheduler::DraftLength(const Sequence& sequence) const {
  if (draft_tokens_left_ == 0 || sequence.planned_tokens < sequence.prompt_tokens) return 0;
  const auto known = static_cast<int64_t>(sequence.tokens.size());
  int64_t most = std::min<int64_t>(limits_.drafts.num_speculative_tokens, draft_tokens_left_);
  // No draft is at the last position of a block, after which states advance: it may be rejected.
  for (const int64_t block :
       {std::min(kStateBlock, limits_.state_tokens), limits_.drafts.draft_state_tokens}) {
    if (block > 0) most = std::min(most, block - 1 - known % block);
  }
  // The token after the last draft is also sampled.
  const int64_t to_come = sequence.max_total_tokens - known;
  most = std::min(most, to_come - 1);
  if (limits_.drafts.by_model()) {
    const int64_t unseen = limits_.drafts.mtp ? 0 : known - sequence.draft_computed_tokens;
    if (unseen > kUnseenPerToken * to_come) return 0;
    most = std::min(most, limits_.drafts.draft_model_len + 1 - known);
  }
  while (most > 0 && !Lacks(sequence, known + most).none()) --most;
  return sequence.acceptance.NextLength(verify_cost_, static_cast<int>(std::max<int64_t>(0, most)));
}

// Drafts what the sequence, which is ready to decode, can verify with its next token, or takes the
// draft model's tokens; returns their number.
int Scheduler::AddDrafts(Sequence& sequence) {
  if (limits_.drafts.by_model()) {
    const auto left = static_cast<size_t>(draft_tokens_left_);
    sequence.drafts.resize(std::min(sequence.drafts.size(), left));
    KeepDraftsOfGrammar(sequence);
  } else {
    BH_CHECK(sequence.drafts.empty());
    if (sequence.in_flight > 0) return 0;  // its last token or a commit is still to come
    const int length = DraftLength(sequence);
    if (length == 0) return 0;
    sequence.drafts = DraftByLookup(sequence.tokens, limits_.drafts, length, lookup_places_left_);
    KeepDraftsOfGrammar(sequence);
    if (sequence.drafts.empty()) sequence.acceptance.FoundNone();
  }
  const auto drafted = static_cast<int>(sequence.drafts.size());
  draft_tokens_left_ -= drafted;
  return drafted;
}

// Adds the sample of the sequence's next row at `position`, after its first `drafted` drafts.
void Scheduler::AddSample(const Sequence& sequence, int seq_index, int64_t position, int drafted,
                          Step& step) {
  SampleRow& sample = step.samples.emplace_back();
  sample.seq_index = seq_index;
  sample.sampling = sequence.sampling;
  sample.position = position;
  sample.drafted = absl::MakeConstSpan(sequence.drafts).first(drafted);
  if (sequence.stop_rule.Bans(sequence.num_generated() + 1 + drafted)) {
    sample.banned = sequence.stop_rule.stop_ids();
  }
  sample.logits = sequence.logits.get();
  // All tokens are known here: steps that sample on the host are committed first.
  BH_CHECK(sample.logits == nullptr || sequence.pending_samples == 0);
}

// Whether a token of the steps in flight could complete the suffix that a draft is looked up by: at
// least the tokens before it occur earlier in its sequence, and waiting for it has been useful.
bool Scheduler::AwaitsDrafts() {
  if (limits_.drafts.num_speculative_tokens == 0) return false;
  BeginDrafts(limits_.max_num_batched_tokens, false);
  DraftOptions before = limits_.drafts;
  before.prompt_lookup_max = before.prompt_lookup_min = before.prompt_lookup_min - 1;
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* sequence) {
    if (sequence->pending_samples == 0 || !ReadyToDecode(*sequence)) return false;
    if (!sequence->acceptance.Awaits(plan_seq_ + 1)) return false;
    if (DraftLength(*sequence) == 0) return false;
    return before.prompt_lookup_min == 0 ||
           !DraftByLookup(sequence->tokens, before, 1, lookup_places_left_).empty();
  });
}

// Chooses the length of each sequence's next draft: no longer than the draft model's steps are
// worth for all of them together.
void Scheduler::BeginDraftRound() {
  BeginDrafts(limits_.max_num_batched_tokens, false);
  std::array<double, kMaxDraftTokens> accepted = {};  // expected, of a step's drafts
  std::array<int, kMaxDraftTokens> drafted = {};
  for (Sequence* sequence : running_) {
    SkipDraftedBlocks(*sequence);
    const int64_t next = sequence->draft_computed_tokens;
    const bool has_hidden =
        !limits_.drafts.mtp || (sequence->hidden_begin <= next && next < sequence->hidden_end);
    const bool drafts = ReadyToDecode(*sequence) && sequence->embeddings.empty() && has_hidden;
    sequence->drafts_wanted = drafts ? DraftLength(*sequence) : 0;
    draft_tokens_left_ -= sequence->drafts_wanted;
    double chance = 1;
    for (int i = 0; i < sequence->drafts_wanted; ++i) {
      accepted[i] += chance *= sequence->acceptance.rate();
      ++drafted[i];
    }
  }
  // In seconds of a step in which each sequence has one token.
  const double step_s = decode_cost_.Seconds(num_decodes_);
  const int num_free = limits_.drafts.mtp ? 1 : 0;  // by a step that runs anyway
  const auto is_worth = [&](int i) {
    const double saved = (accepted[i] - verify_cost_ * drafted[i]) / num_decodes_;
    const double cost_s = i >= num_free ? draft_cost_.Seconds(drafted[i]) : 0;
    return saved * step_s > (step_s > 0 ? cost_s : -1);
  };
  int steps = 0;
  while (steps < limits_.drafts.num_speculative_tokens && drafted[steps] > 0 && is_worth(steps)) {
    ++steps;
  }
  if (draft_trials_ >= 1) steps = std::max(steps, 1);
  if (!draft_allowance_.is_left()) steps = std::min(steps, num_free);
  for (Sequence* sequence : running_) {
    sequence->drafts_wanted = std::min(sequence->drafts_wanted, steps);
  }
}

// The draft model's next step before the model's own, if it has one: each gives every sequence that
// drafts one more token. The first of a round also computes what the draft model has not seen yet.
std::optional<Step> Scheduler::PlanDraftStep() {
  if (!limits_.drafts.by_model()) return std::nullopt;
  const bool begins = !drafts_round_;
  const bool follows = begins && limits_.drafts.mtp;
  if (begins) BeginDraftRound();
  int unseen_left = begins ? UnseenTokens(limits_) : 0;
  Step step;
  step.plan.set_draft(true);
  step.plan.set_tokens_ahead(limits_.drafts.mtp ? 1 : 0);
  bool only_decodes = true;
  int left = DraftStepTokens(limits_);
  draft_writes_.clear();
  for (Sequence* sequence : running_) {
    const int tokens = limits_.drafts.mtp ? AddMtpRow(*sequence, follows, step)
                                          : AddDraftRow(*sequence, left, unseen_left, step);
    left -= tokens;
    only_decodes &= tokens <= 2 && !follows;
  }
  drafts_round_ = !planned_rows_.empty();
  if (!drafts_round_) return std::nullopt;
  CompletePlan(step);
  in_flight_.push_back({std::move(planned_rows_), true,
                        only_decodes ? step.plan.token_ids_size() : int64_t{0}, true, follows});
  planned_rows_ = {};
  return step;
}

// For a sequence that drafts: adds the tokens and drafts that the draft model has not computed, as
// far as there is room, and the next draft if those are all. Returns the number of tokens.
int Scheduler::AddDraftRow(Sequence& sequence, int left, int& unseen_left, Step& step) {
  const auto drafted = static_cast<int>(sequence.drafts.size());
  if (sequence.state != SequenceState::kRunning || drafted >= sequence.drafts_wanted) return 0;
  const auto known = static_cast<int64_t>(sequence.tokens.size());
  const int64_t begin = sequence.draft_computed_tokens;
  int64_t end = std::min(known + drafted, begin + left);
  // After a fully accepted draft there are two.
  const bool is_unseen = known + drafted - begin > 2;
  if (is_unseen) end = std::min(end, begin + unseen_left);
  const bool samples = end == known + drafted && GrammarIsReady(sequence, sequence.drafts);
  // Drafts alone need not be computed if none follows.
  const bool has_row = end > begin && (samples || begin < known) && MayWrite(sequence, begin, end);
  if (!samples || !has_row) sequence.drafts_wanted = 0;  // not before the next step
  if (!has_row) return 0;
  const auto tokens = static_cast<int>(end - begin);
  if (is_unseen) unseen_left -= tokens;
  PlanDraftRow(sequence, begin, end, samples, step);
  return tokens;
}

// For the MTP layer. In the step after the model's: all tokens with hidden states left by it, and
// the first draft if one is wanted; in later steps the next draft. Returns the number of tokens.
int Scheduler::AddMtpRow(Sequence& sequence, bool follows, Step& step) {
  const int64_t hidden_end = std::exchange(sequence.hidden_end, 0);
  const auto drafted = static_cast<int64_t>(sequence.drafts.size());
  const auto known = static_cast<int64_t>(sequence.tokens.size());
  int64_t begin = sequence.draft_computed_tokens;
  int64_t end = begin + 1;
  if (follows) {
    // If equal sequences reach the end of a block together, one computes it for all.
    const int64_t block_tokens = limits_.block_tokens;
    for (int64_t block = begin / block_tokens;
         begin == block * block_tokens && block < sequence.blocks_cached &&
         draft_writes_.contains(sequence.blocks[block]);
         ++block) {
      begin += block_tokens;
    }
    sequence.draft_computed_tokens = begin;
    end = hidden_end;
  }
  const bool samples = drafted < sequence.drafts_wanted && end == known - 1 + drafted &&
                       GrammarIsReady(sequence, sequence.drafts);
  const bool has_row = sequence.state == SequenceState::kRunning && sequence.embeddings.empty() &&
                       (follows ? begin >= sequence.hidden_begin && begin < end : samples) &&
                       MayWrite(sequence, begin, end);
  if (!samples || !has_row) sequence.drafts_wanted = 0;  // not before the next step
  if (!has_row) return 0;
  PlanDraftRow(sequence, begin, end, samples, step);
  return static_cast<int>(end - begin);
}

void Scheduler::PlanDraftRow(Sequence& sequence, int64_t begin, int64_t end, bool samples,
                             Step& step) {
  const auto drafted = static_cast<int>(sequence.drafts.size());
  const auto known = static_cast<int64_t>(sequence.tokens.size());
  internal::StepPlan& plan = step.plan;
  const int ahead = plan.tokens_ahead();
  if (samples) AddSample(sequence, plan.slot_size(), end + ahead, drafted, step);
  plan.add_slot(sequence.slot);
  plan.add_num_tokens(static_cast<int32_t>(end - begin));
  plan.add_start_position(static_cast<int32_t>(begin));
  plan.add_num_logits(samples ? 1 : 0);
  plan.add_from_candidates(samples && SamplesFromCandidates(step.samples.back()));
  plan.add_from_row(samples && SamplesFromRow(step.samples.back()));
  for (int64_t at = begin + ahead; at < end + ahead; ++at) {
    plan.add_token_ids(at < known ? sequence.tokens[at] : sequence.drafts[at - known]);
  }
  AddTableChanges(sequence, end, 1, step);
  ++sequence.in_flight;
  planned_rows_.push_back(
      {.sequence = &sequence, .begin = begin, .end = end, .num_samples = samples ? 1 : 0});
}

// After a step of the model that has computed its tokens of the positions from `begin` to `end`.
void Scheduler::KeepDrafted(Sequence& sequence, int64_t begin, int64_t end) const {
  // From there on the MTP layer's own states were used instead of the model's.
  sequence.draft_computed_tokens =
      std::min(sequence.draft_computed_tokens, limits_.drafts.mtp ? begin : end);
  sequence.hidden_begin = begin;
  sequence.hidden_end = end;
}

// Skips cached blocks that the draft model has computed for another sequence, unless it has states.
void Scheduler::SkipDraftedBlocks(Sequence& sequence) const {
  if (limits_.drafts.draft_state_tokens > 0) return;
  if (sequence.draft_computed_tokens % limits_.block_tokens != 0) return;
  int64_t block = sequence.draft_computed_tokens / limits_.block_tokens;
  while (block < sequence.blocks_cached && pool_.cache()->drafted(sequence.blocks[block])) ++block;
  sequence.draft_computed_tokens = block * limits_.block_tokens;
}

// The draft model has computed nothing of the sequence from block `i` on. States cannot go back.
void Scheduler::ForgetDrafted(Sequence& sequence, int64_t i) const {
  const int64_t first = i * limits_.block_tokens;
  if (sequence.draft_computed_tokens <= first) return;
  sequence.draft_computed_tokens = limits_.drafts.draft_state_tokens > 0 ? 0 : first;
}

// Sequences that share a cached block write the same data into it, but not in one step.
bool Scheduler::MayWrite(const Sequence& sequence, int64_t begin, int64_t end) {
  const int64_t last = std::min(sequence.blocks_cached, TableBlocks(end));
  const int64_t first = std::min(begin / limits_.block_tokens, last);
  const auto blocks = absl::MakeConstSpan(sequence.blocks).subspan(first, last - first);
  const auto is_written = [&](int block) { return draft_writes_.contains(block); };
  if (std::any_of(blocks.begin(), blocks.end(), is_written)) return false;
  draft_writes_.insert(blocks.begin(), blocks.end());
  return true;
}

void Scheduler::CommitDrafts(const std::vector<PlannedRow>& rows, StepResult result) {
  size_t next_sample = 0;
  for (const PlannedRow& row : rows) {
    Sequence& sequence = *row.sequence;
    --sequence.in_flight;
    const int64_t block_tokens = limits_.block_tokens;
    const int64_t full = std::min(sequence.blocks_cached, row.end / block_tokens);
    for (int64_t block = sequence.draft_computed_tokens / block_tokens; block < full; ++block) {
      pool_.SetDrafted(sequence.blocks[block]);
    }
    sequence.draft_computed_tokens = row.end;
    if (row.num_samples > 0) {
      BH_CHECK(next_sample < result.samples.size());
      TakeDraft(sequence, result.samples[next_sample++]);
    }
    ReleaseIfUnused(sequence);
  }
  BH_CHECK(next_sample == result.samples.size());
}

// A draft model without a token counts as having drafted a wrong one.
void Scheduler::TakeDraft(Sequence& sequence, const absl::StatusOr<GeneratedToken>& sample) {
  if (!sample.ok()) {
    sequence.drafts_wanted = 0;
    sequence.acceptance.Record(1, 0, 0);
    return;
  }
  sequence.drafts.push_back(sample->id);
  const auto drafted = static_cast<int64_t>(sequence.drafts.size());
  const int64_t total = sequence.known_tokens() + drafted;
  if (sequence.stop_rule.Check(sample->id, total - sequence.prompt_tokens, total).has_value()) {
    sequence.drafts_wanted = 0;  // nothing follows
  }
}

// How many of the step's drafts for the sequence equal the samples.
int Scheduler::NumAccepted(const Sequence& sequence,
                           absl::Span<const absl::StatusOr<GeneratedToken>> samples) {
  size_t accepted = 0;
  while (accepted < sequence.drafts.size() && samples[accepted].ok() &&
         samples[accepted]->id == sequence.drafts[accepted]) {
    ++accepted;
  }
  return static_cast<int>(accepted);
}

// After a commit: returns window blocks that only hold rejected drafts.
void Scheduler::ReturnDraftBlocks(Sequence& sequence, int64_t end) {
  const int64_t needed = TableBlocks(end);
  for (WindowBlocks& window : sequence.windows) {
    while (window.end() > needed && !window.blocks.empty()) {
      pool_.ReturnReserved(window.blocks.back());
      window.blocks.pop_back();
    }
    window.sent = std::min(window.sent, window.end());
  }
}

}  // namespace bulkhead
