// Drafts (speculative decoding): which sequences a step verifies some for, and of how many tokens.
#include <algorithm>

#include "base/check.h"
#include "runtime/engine/scheduler.h"

namespace bulkhead {
namespace {

constexpr int kDraftsBesidePrompts = 8;  // at most this part of a step while prompts are computed

}  // namespace

// Before the decodes of a step of `budget` tokens are planned. All of them go before any draft.
void Scheduler::BeginDrafts(int budget) {
  draft_tokens_left_ = 0;
  if (limits_.drafts.num_speculative_tokens == 0) return;
  int sequences = 0;
  bool has_prompts = waiting_.size() > 0 && HasSlot();
  for (const Sequence* sequence : running_) {
    if (sequence->state == SequenceState::kRunning) has_prompts |= sequence->prefilling();
    sequences += ReadyToDecode(*sequence) ? 1 : 0;
  }
  const int left = std::max(0, budget - sequences);
  draft_tokens_left_ = has_prompts ? left / kDraftsBesidePrompts : left;
  lookup_places_left_ = kPlacesOfStep;
  draft_worth_ = decode_cost_.OfAnotherEach(sequences);
}

void Scheduler::RecordStepTime(double seconds) {
  const int64_t tokens = in_flight_.front().decode_tokens;
  if (tokens > 0) decode_cost_.Record(tokens, seconds);
}

// Drafts what the sequence, ready to decode, can verify with its next token; returns the number of
// tokens. They take blocks that it holds, and no others.
int Scheduler::AddDrafts(Sequence& sequence) {
  BH_CHECK(sequence.drafts.empty());
  if (draft_tokens_left_ == 0 || sequence.planned_tokens < sequence.prompt_tokens) return 0;
  // What the form of an answer allows next follows from the tokens that were committed.
  if (sequence.logits != nullptr && sequence.logits->has_form()) return 0;
  const auto known = static_cast<int64_t>(sequence.tokens.size());
  int64_t most = std::min<int64_t>(limits_.drafts.num_speculative_tokens, draft_tokens_left_);
  // The token behind the last draft is sampled, too.
  most = std::min(most, sequence.max_total_tokens - known - 1);
  while (most > 0 && !Lacks(sequence, known + most).none()) --most;
  const int length =
      sequence.acceptance.NextLength(draft_worth_, static_cast<int>(std::max<int64_t>(0, most)));
  if (length == 0) return 0;
  sequence.drafts = DraftByLookup(sequence.tokens, limits_.drafts, length, lookup_places_left_);
  const auto drafted = static_cast<int>(sequence.drafts.size());
  draft_tokens_left_ -= drafted;
  return drafted;
}

// How many of the step's drafts for the sequence are what was sampled.
int Scheduler::NumAccepted(const Sequence& sequence,
                           absl::Span<const absl::StatusOr<GeneratedToken>> samples) {
  size_t accepted = 0;
  while (accepted < sequence.drafts.size() && samples[accepted].ok() &&
         samples[accepted]->id == sequence.drafts[accepted]) {
    ++accepted;
  }
  return static_cast<int>(accepted);
}

// After a commit: the blocks of windows that only rejected drafts lie in.
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
