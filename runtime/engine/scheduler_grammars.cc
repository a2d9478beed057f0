// Work on the grammars of answers, limited per step: sequences whose next token needs more wait for
// later steps, and none ends because of it. The sampled token does not depend on the wait.
#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/engine/scheduler.h"

namespace bulkhead {
namespace {

// Each step that a sequence waits offsets this much of the work done for it.
constexpr int64_t kWorkOfWaiting = kGrammarWorkOfStep / 8;

}  // namespace

// Called with each commit.
void Scheduler::RenewGrammarWork() {
  grammar_work_left_ = std::min(kGrammarWorkOfStep, grammar_work_left_ + kGrammarWorkOfStep);
  token_work_left_ = kTokenWorkOfStep;
}

// Sequences with the least work so far go first.
void Scheduler::PrepareGrammars() {
  std::vector<Sequence*> sequences;
  for (Sequence* sequence : running_) {
    if (sequence->state == SequenceState::kRunning && sequence->logits != nullptr &&
        sequence->logits->has_grammar()) {
      sequences.push_back(sequence);
    }
  }
  std::stable_sort(sequences.begin(), sequences.end(), [](const Sequence* a, const Sequence* b) {
    return a->grammar_work < b->grammar_work;
  });
  for (Sequence* sequence : sequences) {
    if (sequence->held_token.has_value() && grammar_work_left_ > 0 && !FollowHeld(*sequence))
      continue;
    if (!GrammarIsReady(*sequence, {})) sequence->grammar_work -= kWorkOfWaiting;
  }
}

// Emits the token, unless that needs more work in later steps; false: the sequence has ended.
bool Scheduler::FollowHeld(Sequence& sequence) {
  Emission emission;
  emission.id = sequence.id;
  emission.preemptions = sequence.preemptions;
  const int64_t before = grammar_work_left_;
  emission.status = sequence.logits->Follow(&grammar_work_left_);
  sequence.grammar_work += before - grammar_work_left_;
  if (sequence.logits->awaits_follow()) return true;
  GeneratedToken token = *std::exchange(sequence.held_token, std::nullopt);
  if (emission.status.ok()) EmitToken(sequence, std::move(token), emission);
  const bool ends = !emission.status.ok() || emission.finish.has_value();
  followed_.push_back(std::move(emission));
  if (ends) Leave(sequence, SequenceState::kEnded);
  return !ends;
}

// Emits the last of the sequence's tokens.
void Scheduler::EmitToken(const Sequence& sequence, GeneratedToken token, Emission& emission) {
  ++generation_tokens_total_;
  const auto total = static_cast<int64_t>(sequence.tokens.size());
  emission.finish = sequence.stop_rule.Check(token.id, total - sequence.prompt_tokens, total);
  emission.token = std::move(token);
  // Only the end can follow a complete grammar.
  const bool stops = emission.finish.has_value() && emission.finish->stop_token_id.has_value();
  if (!stops && sequence.logits != nullptr && sequence.logits->is_complete()) {
    emission.finish = TokenFinish{FinishReason::kEos, {}};
  }
}

// Whether the token after `drafted` can be sampled in the step being planned.
bool Scheduler::GrammarIsReady(Sequence& sequence, absl::Span<const TokenId> drafted) {
  if (sequence.logits == nullptr) return true;
  const int64_t before = grammar_work_left_;
  const bool ready = sequence.logits->Prepare(drafted, &grammar_work_left_);
  sequence.grammar_work += before - grammar_work_left_;
  return ready;
}

// If a step has nothing to compute and none is in flight, no other sequence waits for the work.
// Does one step's work and returns, as requests may have arrived.
bool Scheduler::PrepareMoreGrammars() {
  if (!in_flight_.empty() || works_on_grammars_) return false;
  // A preempted sequence may have resumed.
  const bool holds = std::any_of(running_.begin(), running_.end(), [](const Sequence* sequence) {
    return sequence->held_token.has_value();
  });
  if (grammar_work_left_ > 0 && !holds) return false;
  grammar_work_left_ = kGrammarWorkOfStep;
  PrepareGrammars();
  return works_on_grammars_ = true;
}

void Scheduler::KeepDraftsOfGrammar(Sequence& sequence) {
  if (sequence.logits == nullptr) return;
  sequence.drafts.resize(sequence.logits->NumAllowed(sequence.drafts, &grammar_work_left_));
}

}  // namespace bulkhead
