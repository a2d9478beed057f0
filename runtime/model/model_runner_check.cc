// Checks a plan against this rank's limits.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "runtime/model/model_runner.h"

namespace bulkhead {

using internal::StepPlan;

absl::Status ModelRunner::Overstep(const StepPlan& plan, const char* what, int64_t value,
                                   int64_t limit) const {
  return WithExitCode(absl::InternalError(absl::StrCat("rank ", rank_, ": step ", plan.seq(),
                                                       " oversteps the sealed arenas: ", what, " ",
                                                       value, ", limit ", limit)),
                      ExitCode::kBug);
}

absl::Status ModelRunner::CheckSnapshots(const StepPlan& plan) const {
  for (const auto& [slots, snapshots] : {std::pair(&plan.restore_slot(), &plan.restore_snapshot()),
                                         std::pair(&plan.save_slot(), &plan.save_snapshot())}) {
    if (slots->size() != snapshots->size())
      return Overstep(plan, "snapshots", snapshots->size(), slots->size());
    for (const int32_t slot : *slots) {
      if (slot < 0 || slot >= limits_.max_num_seqs)
        return Overstep(plan, "slot of a snapshot", slot, limits_.max_num_seqs - 1);
    }
    for (const int32_t snapshot : *snapshots) {
      if (snapshot < 0 || snapshot >= limits_.num_snapshots())
        return Overstep(plan, "snapshot", snapshot, limits_.num_snapshots() - 1);
    }
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::Check(const StepPlan& plan) const {
  const auto overstep = [&](const char* what, int64_t value, int64_t limit) {
    return Overstep(plan, what, value, limit);
  };
  const int seqs = plan.slot_size();
  const int tokens = plan.token_ids_size();
  if (seqs > limits_.max_num_seqs) return overstep("sequences", seqs, limits_.max_num_seqs);
  if (tokens > limits_.max_num_batched_tokens) {
    return overstep("tokens", tokens, limits_.max_num_batched_tokens);
  }
  if (plan.padded_tokens() < tokens || plan.padded_tokens() > limits_.max_num_batched_tokens) {
    return overstep("padded tokens", plan.padded_tokens(), limits_.max_num_batched_tokens);
  }
  const int padded_seqs = seqs + plan.padded_tokens() - tokens;
  if (padded_seqs > limits_.max_num_seqs) {
    return overstep("sequences with padding", padded_seqs, limits_.max_num_seqs);
  }
  if (plan.num_tokens_size() != seqs || plan.start_position_size() != seqs ||
      plan.num_logits_size() != seqs || plan.adapter_size() > seqs ||
      plan.table_index_size() != plan.table_slot_size() ||
      plan.table_block_size() != plan.table_slot_size() ||
      (plan.table_group_size() > 0 && plan.table_group_size() != plan.table_slot_size())) {
    return overstep("columns of unequal length, sequences", seqs, seqs);
  }
  if (plan.tokens_ahead() < 0 || plan.tokens_ahead() > 1)
    return overstep("tokens ahead", plan.tokens_ahead(), 1);
  int64_t sum = 0;
  for (int s = 0; s < seqs; ++s) {
    const int64_t n = plan.num_tokens(s);
    const int64_t end = int64_t{plan.start_position(s)} + n;
    if (plan.slot(s) < 0 || plan.slot(s) >= limits_.max_num_seqs) {
      return overstep("slot", plan.slot(s), limits_.max_num_seqs - 1);
    }
    if (n < 1 || plan.start_position(s) < 0 || end > limits_.max_model_len) {
      return overstep("position", end, limits_.max_model_len);
    }
    if (plan.num_logits(s) < 0 || plan.num_logits(s) > n)
      return overstep("logits", plan.num_logits(s), n);
    const int most_sampled = 1 + limits_.max_drafts;
    if (SourceOf(plan, s) != SampleSource::kHost &&
        (plan.num_logits(s) < 1 || plan.num_logits(s) > most_sampled))
      return overstep("logits to sample from", plan.num_logits(s), most_sampled);
    const auto adapters = std::ssize(plan_.config().adapters);
    if (s < plan.adapter_size() && (plan.adapter(s) < 0 || plan.adapter(s) > adapters))
      return overstep("adapter", plan.adapter(s), adapters);
    sum += n;
  }
  if (sum != tokens) return overstep("tokens of the sequences", sum, tokens);
  for (const int32_t id : plan.token_ids()) {
    const bool known = id >= 0 && id < plan_.config().vocab_size;
    if (!known && id != kGivenRow && !(id == kLastSampled && device_sampler_.has_value()))
      return overstep("token id", id, plan_.config().vocab_size - 1);
  }
  for (int i = 0; i < plan.table_slot_size(); ++i) {
    if (plan.table_slot(i) < 0 || plan.table_slot(i) >= limits_.max_num_seqs) {
      return overstep("table slot", plan.table_slot(i), limits_.max_num_seqs - 1);
    }
    if (plan.table_group_size() > 0 &&
        (plan.table_group(i) < 0 || plan.table_group(i) >= limits_.num_kv_groups())) {
      return overstep("table group", plan.table_group(i), limits_.num_kv_groups() - 1);
    }
    if (plan.table_index(i) < 0 || plan.table_index(i) >= limits_.blocks_per_seq()) {
      return overstep("table index", plan.table_index(i), limits_.blocks_per_seq() - 1);
    }
    if (plan.table_block(i) < 0 || plan.table_block(i) > limits_.num_kv_blocks) {
      return overstep("block", plan.table_block(i), limits_.num_kv_blocks);
    }
  }
  return CheckSnapshots(plan);
}

// Every kGivenRow has its row where rank 0 brings it into the sum.
absl::Status ModelRunner::CheckGivenRows(const Step& step) const {
  if (rank_ != 0 || !plan_.rank(rank_).first_stage()) return absl::OkStatus();
  const auto& ids = step.plan.token_ids();
  auto left = std::count(ids.begin(), ids.end(), kGivenRow);
  bool fits = true;
  for (const GivenRows& given : step.given_rows) {
    fits = fits && given.rows.cols() == plan_.config().hidden_size && given.first_token >= 0 &&
           given.first_token + given.rows.rows() <= ids.size();
    if (!fits) break;
    const auto first = ids.begin() + given.first_token;
    left -= std::count(first, first + given.rows.rows(), kGivenRow);
  }
  if (fits && left == 0) return absl::OkStatus();
  return WithExitCode(absl::InternalError(absl::StrCat("rank 0: step ", step.plan.seq(),
                                                       " is not given the rows that it names")),
                      ExitCode::kBug);
}

}  // namespace bulkhead
