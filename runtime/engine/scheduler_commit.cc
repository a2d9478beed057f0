// Applies a step's result to its sequences.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/engine/scheduler.h"

namespace bulkhead {

std::vector<Emission> Scheduler::Commit(StepResult result) {
  BH_CHECK(!in_flight_.empty());
  const std::vector<PlannedRow> rows = std::move(in_flight_.front().rows);
  const bool by_draft_model = in_flight_.front().by_draft_model;
  in_flight_.pop_front();
  std::vector<Emission> emissions;
  if (by_draft_model) {
    CommitDrafts(rows, std::move(result));
    return emissions;
  }
  RenewGrammarWork();
  const DraftTotals before = draft_totals_;
  emissions.reserve(rows.size());
  size_t next_sample = 0;
  size_t next_logits = 0;
  size_t next_state = 0;
  for (const PlannedRow& row : rows) {
    absl::Status wanted_rows;
    if (row.has_prompt_logits) {
      BH_CHECK(next_logits < result.prompt_logits.size());
      wanted_rows = std::move(result.prompt_logits[next_logits++]);
    }
    if (row.has_hidden_state) {
      BH_CHECK(next_state < result.hidden_states.size());
      wanted_rows.Update(result.hidden_states[next_state++]);
    }
    BH_CHECK(next_sample + row.num_samples <= result.samples.size());
    CommitRow(row, wanted_rows,
              absl::MakeSpan(result.samples).subspan(next_sample, row.num_samples), emissions);
    next_sample += row.num_samples;
  }
  BH_CHECK(next_sample == result.samples.size() && next_logits == result.prompt_logits.size() &&
           next_state == result.hidden_states.size());
  RecordSaving(before, rows.size());
  return emissions;
}

void Scheduler::CommitRow(const PlannedRow& row, const absl::Status& wanted_rows,
                          absl::Span<absl::StatusOr<GeneratedToken>> samples,
                          std::vector<Emission>& emissions) {
  Sequence& sequence = *row.sequence;
  if (row.num_samples > 0) --sequence.pending_samples;
  const int accepted = NumAccepted(sequence, samples);
  int committed = 0;  // samples
  bool ends = false;
  // Otherwise a surplus token is dropped.
  if (sequence.state != SequenceState::kEnded) {
    do {
      Emission emission;
      emission.id = sequence.id;
      emission.preemptions = sequence.preemptions;
      if (!wanted_rows.ok()) {
        emission.status = wanted_rows;
      } else if (!samples.empty()) {
        CommitSample(sequence, std::move(samples[committed++]), emission);
      } else if (row.ends) {
        emission.finish = TokenFinish{FinishReason::kMaxTokens, {}};
      }
      ends = !emission.status.ok() || emission.finish.has_value();
      if (ends || emission.token.has_value()) emissions.push_back(std::move(emission));
    } while (!ends && !samples.empty() && committed <= accepted && !sequence.held_token);
    if (!samples.empty()) {
      // Correct drafts after a held token or the end were not used: they do not count as rejected.
      const auto drafted = static_cast<int>(sequence.drafts.size());
      const int used = std::min(accepted, committed);
      draft_totals_.Count(drafted, used);
      sequence.acceptance.Record(committed > accepted ? drafted : used, used, committed);
    }
  } else if (!samples.empty() && !samples[0].ok()) {
    sequence.failed = true;
  }
  sequence.drafts.clear();
  const int64_t end = row.end + std::max(0, committed - 1);  // end of its computed tokens
  KeepDrafted(sequence, row.begin, end);
  if (sequence.state == SequenceState::kRunning) {
    sequence.planned_tokens = std::max(sequence.planned_tokens, end);
  }
  if (!sequence.failed) CacheFullBlocks(sequence, end);
  if (row.snapshot >= 0) KeepSnapshot(sequence, row);
  if (row.num_samples > 1) ReturnDraftBlocks(sequence, end);
  LeaveWindows(sequence, end);
  if (ends) Leave(sequence, SequenceState::kEnded);
  --sequence.in_flight;
  ReleaseIfUnused(sequence);
}

void Scheduler::CommitSample(Sequence& sequence, absl::StatusOr<GeneratedToken> sample,
                             Emission& emission) {
  if (!sample.ok()) {
    sequence.failed = true;
    emission.status = sample.status();
    return;
  }
  const TokenId token = sample->id;
  sequence.tokens.push_back(token);
  if (sequence.logits != nullptr) {
    emission.status = sequence.logits->Add(token, &token_work_left_);
    if (!emission.status.ok()) return;
    if (sequence.logits->awaits_follow()) {
      sequence.held_token = *std::move(sample);
      return;
    }
  }
  EmitToken(sequence, *std::move(sample), emission);
}

}  // namespace bulkhead
