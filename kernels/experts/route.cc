#include "kernels/experts/route.h"

#include <algorithm>
#include <bitset>
#include <cstring>

#include "base/check.h"

namespace bulkhead {
namespace {

// Index of the largest of `values` that `skip` does not exclude; the first of equals.
template <typename Skip>
int IndexOfLargest(const float* values, int count, const Skip& skip) {
  int best = -1;
  for (int i = 0; i < count; ++i) {
    if (skip(i)) continue;
    if (best < 0 || values[i] > values[best]) best = i;
  }
  BH_CHECK(best >= 0);
  return best;
}

// The sum of the `best` largest of `values`, in descending order.
float SumOfLargest(const float* values, int count, int best) {
  std::bitset<kMaxExperts> taken;
  float sum = 0;
  for (int i = 0; i < std::min(best, count); ++i) {
    const int at = IndexOfLargest(values, count, [&](int e) { return taken[e]; });
    taken[at] = true;
    sum = i == 0 ? values[at] : sum + values[at];
  }
  return sum;
}

}  // namespace

void ChooseExperts(const float* choice, int num_experts, const RouterOptions& options, int count,
                   int32_t* experts) {
  std::bitset<kMaxExperts> is_candidate;
  const int group_size = num_experts / options.num_groups;
  if (options.num_groups > 1) {
    float scores[kMaxExperts];
    for (int group = 0; group < options.num_groups; ++group) {
      scores[group] =
          SumOfLargest(choice + group * group_size, group_size, options.experts_per_group_score);
    }
    std::bitset<kMaxExperts> is_chosen;
    for (int i = 0; i < options.num_chosen_groups; ++i) {
      is_chosen[IndexOfLargest(scores, options.num_groups,
                               [&](int group) { return is_chosen[group]; })] = true;
    }
    for (int e = 0; e < num_experts; ++e) is_candidate[e] = is_chosen[e / group_size];
  } else {
    for (int e = 0; e < num_experts; ++e) is_candidate[e] = true;
  }
  for (int i = 0; i < count; ++i) {
    experts[i] = IndexOfLargest(choice, num_experts, [&](int e) { return !is_candidate[e]; });
    is_candidate[experts[i]] = false;
  }
  std::sort(experts, experts + count);
}

void SortPairs(int64_t num_tokens, const ExpertRouting& routing) {
  const int64_t pairs = num_tokens * routing.experts_per_token;
  int32_t* begin = routing.expert_begin;
  std::memset(begin, 0, (routing.num_experts + 1) * sizeof(int32_t));
  for (int64_t i = 0; i < pairs; ++i) ++begin[routing.experts[i]];
  int32_t sum = 0;
  for (int e = 0; e <= routing.num_experts; ++e) {
    sum += begin[e];
    begin[e] = sum;  // its end; decreases to its begin as pairs are filled from the last token on
  }
  for (int64_t i = pairs - 1; i >= 0; --i) {
    const int32_t at = --begin[routing.experts[i]];
    routing.pair_token[at] = static_cast<int32_t>(i / routing.experts_per_token);
    routing.pair_weight[at] = routing.weights[i];
  }
}

}  // namespace bulkhead
