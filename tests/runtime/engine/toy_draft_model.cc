// The toy draft model.
#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {

// No row writes a block that another one writes.
void ToyRunner::CheckDraft(const internal::StepPlan& plan) {
  ++draft_steps_;
  EXPECT_LE(plan.token_ids_size(), DraftStepTokens(limits_));
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
    uint64_t hash = begin == 0 ? starts_[slot] : cell(slot, begin - 1);
    const bool samples = plan.num_logits(i) > 0;
    const SampleRow* const row = samples ? &step.samples[result.samples.size()] : nullptr;
    if (begin > 0 && (!samples || row->drafted.empty())) {
      EXPECT_EQ(hash, Cell(slot, begin - 1)) << "not what the model has before " << begin;
    }
    for (int64_t at = begin; at < begin + plan.num_tokens(i); ++at) {
      hash = ToyHash(hash, plan.token_ids(token++));
      cell(slot, at) = hash;
    }
    if (!samples) continue;
    EXPECT_EQ(row->position, begin + plan.num_tokens(i));
    if (draft_errors_ == DraftErrors::kSome && hash % 19 == 0) {
      result.samples.emplace_back(absl::InternalError("logits are not finite"));
    } else {
      result.samples.emplace_back(Draft(hash, *row));
    }
  }
  return result;
}

}  // namespace bulkhead
