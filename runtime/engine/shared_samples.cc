#include "runtime/engine/shared_samples.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/token_sampling.h"
#include "runtime/engine/candidates.h"
#include "runtime/engine/sampler.h"

namespace bulkhead {
namespace {

// Whether all columns have an entry for each row.
bool HasAllColumns(const internal::StepPlan& plan) {
  const int rows = plan.sample_seq_size();
  return plan.sample_position_size() == rows && plan.sample_temperature_size() == rows &&
         plan.sample_top_p_size() == rows && plan.sample_top_k_size() == rows &&
         plan.sample_min_p_size() == rows && plan.sample_seed_size() == rows &&
         plan.sample_num_logprobs_size() == rows && plan.sample_num_banned_size() == rows;
}

bool IsOfPlan(const SampleRow& row, const internal::StepPlan& plan) {
  const int seq = row.seq_index;
  if (seq < 0 || seq >= plan.slot_size()) return false;
  const int64_t end =
      int64_t{plan.start_position(seq)} + plan.num_tokens(seq) + plan.tokens_ahead();
  return row.position > end - plan.num_logits(seq) && row.position <= end;
}

bool CanBeSampled(const SampleRow& row) {
  const SamplingParams& sampling = row.sampling;
  return sampling.temperature >= 0 && std::isfinite(sampling.temperature) && sampling.top_p > 0 &&
         sampling.top_p <= 1 && sampling.top_k >= 0 && sampling.min_p >= 0 && sampling.min_p <= 1 &&
         row.num_logprobs.value_or(0) >= 0 && row.num_logprobs.value_or(0) <= kMaxSharedLogprobs &&
         std::ssize(row.banned) <= kMaxSharedBanned &&
         std::is_sorted(row.banned.begin(), row.banned.end());
}

float BitsOf(int32_t value) { return std::bit_cast<float>(value); }
int32_t IntOf(float bits) { return std::bit_cast<int32_t>(bits); }

}  // namespace

void AddSharedSamples(Step& step) {
  internal::StepPlan& plan = step.plan;
  auto needed_whole = step.prompt_logits.begin();  // both ascend
  int of_rank0 = -1;  // a sequence: rows after drafts wait for earlier ones
  for (const SampleRow& row : step.samples) {
    while (needed_whole != step.prompt_logits.end() && needed_whole->seq_index < row.seq_index)
      ++needed_whole;
    if ((needed_whole != step.prompt_logits.end() && needed_whole->seq_index == row.seq_index) ||
        row.logits != nullptr || row.num_logprobs.value_or(0) > kMaxSharedLogprobs ||
        std::ssize(row.banned) > kMaxSharedBanned) {
      of_rank0 = row.seq_index;
    }
    if (row.seq_index == of_rank0) continue;
    plan.add_sample_seq(row.seq_index);
    plan.add_sample_position(static_cast<int32_t>(row.position));
    plan.add_sample_temperature(row.sampling.temperature);
    plan.add_sample_top_p(row.sampling.top_p);
    plan.add_sample_top_k(row.sampling.top_k);
    plan.add_sample_min_p(row.sampling.min_p);
    plan.add_sample_seed(row.sampling.seed);
    plan.add_sample_num_logprobs(row.num_logprobs.value_or(-1));
    plan.add_sample_num_banned(static_cast<int32_t>(row.banned.size()));
    plan.mutable_sample_banned()->Add(row.banned.begin(), row.banned.end());
  }
}

absl::StatusOr<std::vector<SampleRow>> SharedSamplesOf(const internal::StepPlan& plan) {
  const auto wrong = [](int row) {
    return absl::InternalError(absl::StrCat("sample ", row, " of the plan is not one of its rows"));
  };
  if (!HasAllColumns(plan)) return wrong(plan.sample_seq_size());
  std::vector<SampleRow> rows(plan.sample_seq_size());
  int64_t banned = 0;
  std::pair<int, int64_t> last(-1, 0);
  for (int i = 0; i < plan.sample_seq_size(); ++i) {
    SampleRow& row = rows[i];
    row.seq_index = plan.sample_seq(i);
    row.position = plan.sample_position(i);
    row.sampling = {.temperature = plan.sample_temperature(i),
                    .top_p = plan.sample_top_p(i),
                    .top_k = plan.sample_top_k(i),
                    .min_p = plan.sample_min_p(i),
                    .seed = plan.sample_seed(i)};
    if (plan.sample_num_logprobs(i) != -1) row.num_logprobs = plan.sample_num_logprobs(i);
    const int64_t num_banned = plan.sample_num_banned(i);
    if (num_banned < 0 || num_banned > plan.sample_banned_size() - banned) return wrong(i);
    const auto first = plan.sample_banned().begin() + banned;
    row.banned.assign(first, first + num_banned);
    banned += num_banned;
    const std::pair<int, int64_t> place(row.seq_index, row.position);
    if (place <= std::exchange(last, place) || !IsOfPlan(row, plan) || !CanBeSampled(row))
      return wrong(i);
  }
  if (banned != plan.sample_banned_size()) return wrong(plan.sample_seq_size());
  return rows;
}

void DivideRows(absl::Span<const int> group_of_row, int num_ranks, int64_t most,
                std::vector<int>& rank_of_row) {
  const auto rows = static_cast<int64_t>(group_of_row.size());
  rank_of_row.assign(rows, 0);
  std::vector<int64_t> loads(num_ranks, 0);
  loads[0] = std::count(group_of_row.begin(), group_of_row.end(), -1);
  for (int64_t begin = 0, end = 0; begin < rows; begin = end) {
    end = begin + 1;
    while (end < rows && group_of_row[end] == group_of_row[begin]) ++end;
    if (group_of_row[begin] < 0) continue;
    int to = 0;  // the rank with fewest rows; ties: the lowest
    for (int rank = 1; rank < num_ranks; ++rank) {
      if (loads[rank] < loads[to] && loads[rank] + end - begin <= most) to = rank;
    }
    loads[to] += end - begin;
    std::fill(rank_of_row.begin() + begin, rank_of_row.begin() + end, to);
  }
}

int64_t SampleFloats(absl::Span<const SampleRow> shared) {
  int64_t floats = 1;
  for (const SampleRow& row : shared) {
    if (row.num_logprobs.has_value()) floats = std::max(floats, 4 + 2 * int64_t{*row.num_logprobs});
  }
  return floats;
}

void PackSample(const absl::StatusOr<GeneratedToken>& sample, const SampleRow& row,
                absl::Span<float> floats) {
  if (!sample.ok()) {
    floats[0] = BitsOf(sample.status() == NotFiniteError(row) ? kNotFinite : kNothingToSample);
    return;
  }
  const GeneratedToken& token = *sample;
  floats[0] = BitsOf(token.id);
  if (!row.num_logprobs.has_value()) return;
  BH_CHECK(std::ssize(floats) >= 4 + 2 * std::ssize(token.top));
  floats[1] = *token.logprob;
  floats[2] = BitsOf(*token.rank);
  floats[3] = BitsOf(static_cast<int32_t>(token.top.size()));
  for (size_t i = 0; i < token.top.size(); ++i) {
    floats[4 + 2 * i] = BitsOf(token.top[i].id);
    floats[5 + 2 * i] = token.top[i].logprob;
  }
}

absl::StatusOr<GeneratedToken> UnpackSample(absl::Span<const float> floats, const SampleRow& row) {
  absl::StatusOr<GeneratedToken> token = SampledToken(IntOf(floats[0]), row);
  if (!token.ok() || !row.num_logprobs.has_value()) return token;
  token->logprob = floats[1];
  token->rank = IntOf(floats[2]);
  const int32_t top = IntOf(floats[3]);
  BH_CHECK(top >= 0 && top <= *row.num_logprobs && 4 + 2 * int64_t{top} <= std::ssize(floats));
  for (int32_t i = 0; i < top; ++i)
    token->top.push_back({IntOf(floats[4 + 2 * i]), floats[5 + 2 * i]});
  return token;
}

}  // namespace bulkhead
