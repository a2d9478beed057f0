#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/experts/op.h"
#include "kernels/experts/route.h"
#include "kernels/experts/runs.h"

namespace bulkhead {

void CpuBackend::RouteTokens(ConstMatrixView logits, ConstMatrixView bias, ConstMatrixView scales,
                             const RouterOptions& options, const ExpertRouting& routing) {
  const int num_experts = routing.num_experts;
  const int k = routing.experts_per_token;
  BH_CHECK(logits.cols() == num_experts && num_experts <= kMaxExperts && k <= num_experts);
  const auto score = BH_OF_ISA(isa_, ScoreExperts);
  const auto route = [&](int64_t token) {
    float scores[kMaxExperts], choice[kMaxExperts];
    const float* const row = logits.F32(token);
    float sum = score(options.scoring, row, num_experts, scores);
    bool has_nan = false;
    for (int e = 0; e < num_experts; ++e) {
      choice[e] = bias.empty() ? row[e] : scores[e] / sum + bias.F32(0)[e];
      has_nan |= std::isnan(choice[e]);
    }
    int32_t* const experts = routing.experts + token * k;
    ChooseExperts(choice, num_experts, options, k, experts);
    if (options.normalizes) {
      sum = 0;
      for (int i = 0; i < k; ++i) sum += scores[experts[i]];
      sum += kMinScoreSum;
    }
    if (has_nan) sum = std::numeric_limits<float>::quiet_NaN();  // so that the logits show it
    for (int i = 0; i < k; ++i) {
      const float scale =
          scales.empty() ? options.scale : options.scale * scales.F32(0)[experts[i]];
      routing.weights[token * k + i] = scores[experts[i]] / sum * scale;
    }
  };
  pool_->ParallelForWork(logits.rows(), logits.rows() * num_experts * k,
                         [&](int, int64_t begin, int64_t end) {
                           for (int64_t token = begin; token < end; ++token) route(token);
                         });
  SortPairs(logits.rows(), routing);
}

void CpuBackend::AddExpertBias(ConstMatrixView biases, const ExpertRouting& routing, MatrixView x) {
  BH_CHECK(biases.rows() == routing.num_experts && biases.cols() == x.cols());
  ForExperts(
      *pool_, routing.num_experts, x.rows() * x.cols(),
      [&](int e) { return int64_t{routing.expert_begin[e + 1]} - routing.expert_begin[e]; },
      [](int) { return int64_t{1}; },
      [&](int, int e, int64_t begin, int64_t end) {
        const float* const bias = biases.F32(e);
        for (int64_t pair = begin; pair < end; ++pair) {
          float* const row = x.F32(routing.expert_begin[e] + pair);
          for (int64_t i = 0; i < x.cols(); ++i) row[i] += bias[i];
        }
      });
}

void CpuBackend::AddWeightedBiases(ConstMatrixView biases, const ExpertRouting& routing,
                                   MatrixView hidden) {
  BH_CHECK(biases.rows() == routing.num_experts && biases.cols() == hidden.cols());
  const int k = routing.experts_per_token;
  ForRows(hidden, [&](int64_t token) {
    float* const row = hidden.F32(token);
    for (int64_t choice = token * k; choice < (token + 1) * k; ++choice) {
      const float* const bias = biases.F32(routing.experts[choice]);
      const float weight = routing.weights[choice];
      for (int64_t i = 0; i < hidden.cols(); ++i) row[i] += weight * bias[i];
    }
  });
}

void CpuBackend::ScaleRows(const float* factors, MatrixView x) {
  ForRows(x, [&](int64_t row) {
    float* const values = x.F32(row);
    for (int64_t i = 0; i < x.cols(); ++i) values[i] *= factors[row];
  });
}

}  // namespace bulkhead
