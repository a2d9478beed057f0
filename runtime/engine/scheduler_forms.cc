// Work on the forms of answers, which a step does little of: sequences for whose next token there
// is more to do wait for later steps, and none ends for it. What a token is does not depend on
// when.
#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/engine/scheduler.h"

namespace bulkhead {
namespace {

// Each step that a sequence waits makes up for as much of the work that it has had.
constexpr int64_t kWorkOfWaiting = kFormWorkOfStep / 8;

}  // namespace

// With a commit.
void Scheduler::RenewFormWork() {
  form_work_left_ = std::min(kFormWorkOfStep, form_work_left_ + kFormWorkOfStep);
  token_work_left_ = kTokenWorkOfStep;
}

// Those that have had least work first.
void Scheduler::PrepareForms() {
  std::vector<Sequence*> sequences;
  for (Sequence* sequence : running_) {
    if (sequence->state == SequenceState::kRunning && sequence->logits != nullptr &&
        sequence->logits->has_form()) {
      sequences.push_back(sequence);
    }
  }
  std::stable_sort(sequences.begin(), sequences.end(), [](const Sequence* a, const Sequence* b) {
    return a->form_work < b->form_work;
  });
  for (Sequence* sequence : sequences) {
    if (!FormIsReady(*sequence, {})) sequence->form_work -= kWorkOfWaiting;
  }
}

// Whether the token behind `drafted` can be sampled in the step being planned.
bool Scheduler::FormIsReady(Sequence& sequence, absl::Span<const TokenId> drafted) {
  if (sequence.logits == nullptr) return true;
  const int64_t before = form_work_left_;
  const bool ready = sequence.logits->Prepare(drafted, &form_work_left_);
  sequence.form_work += before - form_work_left_;
  return ready;
}

// Where a step has nothing to compute and none is in flight, no other sequence waits for the work.
bool Scheduler::MayPrepareMore() {
  const bool may = form_work_left_ <= 0 && in_flight_.empty();
  if (may) form_work_left_ = kFormWorkOfStep;
  return may;
}

void Scheduler::KeepDraftsOfForm(Sequence& sequence) {
  if (sequence.logits == nullptr) return;
  sequence.drafts.resize(sequence.logits->NumAllowed(sequence.drafts, &form_work_left_));
}

}  // namespace bulkhead
