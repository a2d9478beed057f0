#include "runtime/engine/rehearsal.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

// `num_seqs` sequences from their beginning, `num_tokens` together.
Step MakeStep(const SchedulerLimits& limits, int num_seqs, int num_tokens, bool from_candidates,
              bool coordinator) {
  Step step;
  internal::StepPlan& plan = step.plan;
  for (int s = 0; s < num_seqs; ++s) {
    const int share = num_tokens / num_seqs + (s < num_tokens % num_seqs ? 1 : 0);
    const int n = std::min(share, limits.max_model_len);
    plan.add_slot(s);
    plan.add_num_tokens(n);
    plan.add_start_position(0);
    plan.add_num_logits(1);
    plan.add_from_candidates(from_candidates);
    for (int i = 0; i < n; ++i) plan.add_token_ids(0);
    for (int i = 0; i * limits.block_tokens < n; ++i) {
      plan.add_table_slot(s);
      plan.add_table_index(i);
      plan.add_table_block(1 + i);
    }
    if (!coordinator) continue;
    SampleRow row;
    row.seq_index = s;
    row.position = n;
    if (from_candidates) row.sampling.temperature = 0;
    step.samples.push_back(row);
  }
  plan.set_padded_tokens(plan.token_ids_size());
  return step;
}

// The longest of the ranks' times.
absl::StatusOr<absl::Duration> Longest(absl::Duration mine, GroupExchange& exchange,
                                       absl::Duration timeout) {
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      exchange.AllGather(absl::StrCat(absl::ToInt64Nanoseconds(mine)), timeout));
  int64_t longest_ns = 0;
  for (const std::string& text : all) {
    int64_t ns = 0;
    if (!absl::SimpleAtoi(text, &ns)) return absl::InternalError("not a rank's time: " + text);
    longest_ns = std::max(longest_ns, ns);
  }
  return absl::Nanoseconds(longest_ns);
}

}  // namespace

int64_t RehearsalBlocks(const SchedulerLimits& limits) {
  const int tokens = limits.max_num_batched_tokens;
  const int seqs = std::min(limits.max_num_seqs, tokens);
  const int longest = std::min((tokens + seqs - 1) / seqs, limits.max_model_len);
  return (longest + limits.block_tokens - 1) / limits.block_tokens;
}

absl::StatusOr<absl::Duration> Rehearse(StepRunner& runner, const SchedulerLimits& limits,
                                        absl::Duration patience, GroupExchange& exchange,
                                        absl::Duration timeout) {
  const int tokens = limits.max_num_batched_tokens;
  const int seqs = std::min(limits.max_num_seqs, tokens);
  const auto run = [&](int num_tokens, bool from_candidates) -> absl::StatusOr<absl::Duration> {
    const Step step =
        MakeStep(limits, seqs, num_tokens, from_candidates, exchange.topology().coordinator());
    const absl::Time begin = absl::Now();
    // One request's failure, such as logits that are no numbers, is not the rehearsal's.
    BH_RETURN_IF_ERROR(RunStep(runner, step).status());
    return Longest(absl::Now() - begin, exchange, timeout);
  };
  // The first touches what no step has touched yet. Whole rows of logits take the longest.
  BH_RETURN_IF_ERROR(run(seqs, true).status());
  BH_ASSIGN_OR_RETURN(const absl::Duration small, run(seqs, false));
  const absl::Duration reckoned = small * (static_cast<double>(tokens) / seqs);
  return reckoned > patience ? reckoned : run(tokens, false);
}

}  // namespace bulkhead
