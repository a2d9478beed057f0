// The toy draft model.
#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {

// No row writes a block that another one writes.
void ToyRunner::CheckDraft(const internal::StepPlan& plan) {
  ++draft_steps_;
  EXPECT_EQ(plan.tokens_ahead(), limits_.drafts.mtp ? 1 : 0);
  EXPECT_LE(plan.token_ids_size(),
            limits_.drafts.mtp ? limits_.max_num_batched_tokens : DraftStepTokens(limits_));
  std::vector<bool> written(limits_.num_kv_blocks + 1, false);
  for (int i = 0; i < plan.slot_size(); ++i) {
    const int end = plan.start_position(i) + plan.num_tokens(i);
    EXPECT_LE(end, limits_.drafts.draft_model_len);
    for (int at = plan.start_position(i) / limits_.block_tokens; at * limits_.block_tokens < end;
         ++at) {
      const BlockId block = tables_[0][plan.slot(i)][at];
      EXPECT_FALSE(written[block]);
      written[block] = true;
    }
  }
}

GeneratedToken ToyRunner::Draft(uint64_t history, const SampleRow& row) const {
  const bool errs = draft_errors_ == DraftErrors::kAll ||
                    (draft_errors_ == DraftErrors::kSome && history % 3 == 0);
  if (errs) ++history;
  GeneratedToken token;
  token.id = row.logits == nullptr ? ToyDraw(history, row.banned)
                                   : ToyDraw(history, row.banned, *row.logits, row.drafted);
  return token;
}

// What an MTP layer's row at `begin` starts from. Behind a step of the model all of the sequence
// that the layer has computed is what it should have, but for the last positions of blocks: another
// sequence may have gone on from there.
uint64_t ToyRunner::MtpHash(int slot, int64_t begin) {
  const int64_t from = last_is_draft_ ? begin - 1 : begin;
  EXPECT_GE(from, last_rows_[slot].begin) << "no hidden state";
  EXPECT_LT(from, last_rows_[slot].end) << "no hidden state";
  const auto drafted = [&](int64_t at) {
    return draft_blocks_[tables_[0][slot][at / limits_.block_tokens]][at % limits_.block_tokens];
  };
  if (last_is_draft_) return drafted(from);
  for (int64_t at = 0; at < begin; ++at) {
    if ((at + 1) % limits_.block_tokens == 0) continue;
    EXPECT_EQ(drafted(at), Cell(slot, at + 1)) << "position " << at << " of " << begin;
  }
  return Cell(slot, from);
}

void ToyRunner::RecordRows(const internal::StepPlan& plan) {
  last_is_draft_ = plan.draft();
  last_rows_.assign(last_rows_.size(), Rows());
  for (int i = 0; i < plan.slot_size(); ++i) {
    const int64_t begin = plan.start_position(i);
    last_rows_[plan.slot(i)] = {begin, begin + plan.num_tokens(i)};
  }
}

// What a draft model with states has of the slot behind the last whole block of them, and in it.
// The model has not computed what drafts are behind.
void ToyRunner::CheckDraftState(int slot, int64_t begin, bool behind_draft) {
  DraftState& state = draft_states_[slot];
  const int64_t block = limits_.drafts.draft_state_tokens;
  if (begin == 0) state = {};
  EXPECT_LE(begin, state.computed);
  EXPECT_EQ(state.whole.end, begin / block * block) << "behind " << begin;
  if (state.whole.end == 0 || behind_draft) return;
  EXPECT_EQ(state.whole.hash, Cell(slot, state.whole.end - 1)) << "another's state";
}

StepResult ToyRunner::RunDraft(const Step& step) {
  const internal::StepPlan& plan = step.plan;
  CheckDraft(plan);
  const auto cell = [&](int slot, int64_t position) -> uint64_t& {
    return draft_blocks_[tables_[0][slot][position / limits_.block_tokens]]
                        [position % limits_.block_tokens];
  };
  StepResult result;
  int token = 0;
  for (int i = 0; i < plan.slot_size(); ++i) {
    const int slot = plan.slot(i);
    const int64_t begin = plan.start_position(i);
    const bool mtp = limits_.drafts.mtp;
    uint64_t hash = mtp ? MtpHash(slot, begin) : begin == 0 ? starts_[slot] : cell(slot, begin - 1);
    const bool samples = plan.num_logits(i) > 0;
    const SampleRow* const row = samples ? &step.samples[result.samples.size()] : nullptr;
    const bool behind_draft = samples && !row->drafted.empty();
    const int state_tokens = limits_.drafts.draft_state_tokens;
    if (state_tokens > 0) CheckDraftState(slot, begin, behind_draft);
    if (!mtp && begin > 0 && !behind_draft) {
      EXPECT_EQ(hash, Cell(slot, begin - 1)) << "not what the model has before " << begin;
    }
    const int64_t end = begin + plan.num_tokens(i);
    for (int64_t at = begin; at < end; ++at) {
      if (mtp && !last_is_draft_) {
        EXPECT_LT(at, last_rows_[slot].end) << "no hidden state";
        hash = Cell(slot, at);
      }
      hash = ToyHash(hash, plan.token_ids(token++));
      cell(slot, at) = hash;
      draft_states_[slot].computed = at + 1;
      const bool is_whole = state_tokens > 0 && (at + 1) % state_tokens == 0;
      if (is_whole) draft_states_[slot].whole = {at + 1, hash};
    }
    if (!samples) continue;
    EXPECT_EQ(row->position, end + plan.tokens_ahead());
    if (draft_errors_ == DraftErrors::kSome && hash % 19 == 0) {
      result.samples.emplace_back(absl::InternalError("logits are not finite"));
    } else {
      result.samples.emplace_back(Draft(hash, *row));
    }
  }
  return result;
}

}  // namespace bulkhead
