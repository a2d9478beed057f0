#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "kernels/experts/route.h"
#include "kernels/reference/ordered_math.h"
#include "kernels/reference/reference_backend.h"

namespace bulkhead {
namespace {

std::vector<float> ScoresInOrder(RouterScoring scoring, const float* logits, int num_experts,
                                 float& sum) {
  std::vector<float> scores(num_experts);
  if (scoring == RouterScoring::kSigmoid) {
    sum = 1;
    for (int e = 0; e < num_experts; ++e) {
      const float exp = ordered::Exp(-std::fabs(logits[e]));
      scores[e] = (logits[e] < 0 ? exp : 1.0F) / (1.0F + exp);
    }
    return scores;
  }
  const float most = *std::max_element(logits, logits + num_experts);
  float lanes[ordered::kLanes] = {};
  for (int e = 0; e < num_experts; ++e) {
    scores[e] = ordered::Exp(logits[e] - most);
    lanes[e % ordered::kLanes] += scores[e];
  }
  sum = ordered::FoldLanes(lanes);
  return scores;
}

std::vector<double> ScoresInDouble(RouterScoring scoring, const float* logits, int num_experts) {
  std::vector<double> scores(num_experts);
  double sum = 0;
  for (int e = 0; e < num_experts; ++e) sum += scores[e] = std::exp(double{logits[e]});
  for (double& score : scores) {
    score = scoring == RouterScoring::kSoftmax ? score / sum : score / (1 + score);
  }
  return scores;
}

// Indices in descending order of values, equal ones by ascending index.
template <typename Number>
std::vector<int> Descending(const std::vector<Number>& values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return values[a] > values[b]; });
  return order;
}

template <typename Number>
std::vector<int> Choose(const std::vector<Number>& choice, const RouterOptions& options,
                        int count) {
  const size_t group_size = choice.size() / options.num_groups;
  std::vector<Number> group_scores;
  for (int group = 0; group < options.num_groups; ++group) {
    std::vector<Number> of_group(choice.begin() + group * group_size,
                                 choice.begin() + (group + 1) * group_size);
    std::sort(of_group.rbegin(), of_group.rend());
    of_group.resize(std::min<size_t>(options.experts_per_group_score, group_size));
    group_scores.push_back(std::accumulate(of_group.begin() + 1, of_group.end(), of_group[0]));
  }
  std::vector<bool> is_chosen(options.num_groups);
  const std::vector<int> groups = Descending(group_scores);
  for (int i = 0; i < options.num_chosen_groups; ++i) is_chosen[groups[i]] = true;
  std::vector<int> experts;
  for (const int e : Descending(choice)) {
    if (static_cast<int>(experts.size()) < count && is_chosen[e / group_size]) experts.push_back(e);
  }
  std::sort(experts.begin(), experts.end());
  return experts;
}

}  // namespace

void ReferenceBackend::RouteTokens(ConstMatrixView logits, ConstMatrixView bias,
                                   ConstMatrixView scales, const RouterOptions& options,
                                   const ExpertRouting& routing) {
  const int num_experts = routing.num_experts;
  const int k = routing.experts_per_token;
  for (int64_t t = 0; t < logits.rows(); ++t) {
    const float* const row = logits.F32(t);
    float sum = 1;
    std::vector<float> scores = ScoresInOrder(options.scoring, row, num_experts, sum);
    if (!in_order_) {
      const std::vector<double> exact = ScoresInDouble(options.scoring, row, num_experts);
      std::copy(exact.begin(), exact.end(), scores.begin());
      sum = 1;
    }
    std::vector<float> choice(row, row + num_experts);
    for (int e = 0; e < num_experts && !bias.empty(); ++e)
      choice[e] = scores[e] / sum + bias.F32(0)[e];
    const bool has_nan =
        std::any_of(choice.begin(), choice.end(), [](float value) { return std::isnan(value); });
    if (has_nan) std::fill(choice.begin(), choice.end(), 0.0F);  // sorting needs an order
    const std::vector<int> experts = Choose(choice, options, k);
    if (options.normalizes) {
      sum = 0;
      for (const int e : experts) sum += scores[e];
      sum += kMinScoreSum;
    }
    if (has_nan) sum = std::numeric_limits<float>::quiet_NaN();
    for (int i = 0; i < k; ++i) {
      routing.experts[t * k + i] = experts[i];
      const float scale =
          scales.empty() ? options.scale : options.scale * scales.F32(0)[experts[i]];
      routing.weights[t * k + i] = scores[experts[i]] / sum * scale;
    }
  }
  SortPairs(logits.rows(), routing);
}

void ReferenceBackend::MatMulExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                                     const ExpertRouting& routing, MatrixView out) {
  for (int e = 0; e < routing.num_experts; ++e) {
    for (int32_t pair = routing.expert_begin[e]; pair < routing.expert_begin[e + 1]; ++pair) {
      MatMul(x.Rows(routing.pair_token[pair], 1), experts[e], out.Rows(pair, 1));
    }
  }
}

void ReferenceBackend::SumExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                                  const ExpertRouting& routing, ConstMatrixView shared_x,
                                  const Linear* shared, MatrixView out) {
  const auto num_slices = static_cast<size_t>(experts[0].shape.num_slices());
  const int64_t cols = out.cols();
  std::vector<std::vector<float>> slices(out.rows() * cols, std::vector<float>(num_slices, -0.0F));
  std::vector<double> exact(in_order_ ? 0 : out.rows() * cols);
  const auto add = [&](const Linear& weight, ConstMatrixView row, int64_t token) {
    if (in_order_) {
      return VisitSliceSums(weight, row, [&](int64_t, int64_t n, std::vector<float>& sums) {
        for (size_t i = 0; i < num_slices; ++i) slices[token * cols + n][i] += sums[i];
      });
    }
    std::vector<float> of_weight(row.cols());
    for (int64_t n = 0; n < cols; ++n) {
      WeightRow(weight, n, of_weight.data());
      exact[token * cols + n] += DotInDouble(row.F32(), of_weight);
    }
  };
  for (int e = 0; e < routing.num_experts; ++e) {
    for (int32_t pair = routing.expert_begin[e]; pair < routing.expert_begin[e + 1]; ++pair) {
      add(experts[e], x.Rows(pair, 1), routing.pair_token[pair]);
    }
  }
  for (int64_t t = 0; t < out.rows(); ++t) {
    if (shared != nullptr) add(*shared, shared_x.Rows(t, 1), t);
    for (int64_t n = 0; n < cols; ++n) {
      out.F32(t)[n] =
          in_order_ ? Join(slices[t * cols + n]) : static_cast<float>(exact[t * cols + n]);
    }
  }
}

void ReferenceBackend::AddExpertBias(ConstMatrixView biases, const ExpertRouting& routing,
                                     MatrixView x) {
  for (int e = 0; e < routing.num_experts; ++e) {
    for (int32_t pair = routing.expert_begin[e]; pair < routing.expert_begin[e + 1]; ++pair) {
      for (int64_t i = 0; i < x.cols(); ++i) x.F32(pair)[i] += biases.F32(e)[i];
    }
  }
}

void ReferenceBackend::AddWeightedBiases(ConstMatrixView biases, const ExpertRouting& routing,
                                         MatrixView hidden) {
  for (int64_t i = 0; i < hidden.rows() * routing.experts_per_token; ++i) {
    float* const row = hidden.F32(i / routing.experts_per_token);
    const float* const bias = biases.F32(routing.experts[i]);
    for (int64_t n = 0; n < hidden.cols(); ++n) row[n] += routing.weights[i] * bias[n];
  }
}

void ReferenceBackend::ScaleRows(const float* factors, MatrixView x) {
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t i = 0; i < x.cols(); ++i) x.F32(t)[i] *= factors[t];
  }
}

}  // namespace bulkhead
