#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/experts/op.h"
#include "kernels/experts/route.h"
#include "kernels/experts/runs.h"
#include "kernels/matmul/op.h"
#include "kernels/packing/quantized_packing.h"

namespace bulkhead {
namespace {

int64_t PanelsOf(const LinearShape& shape) { return CeilDiv(shape.rows, kPanelColumns); }

}  // namespace

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
    if (has_nan) sum = std::numeric_limits<float>::quiet_NaN();  // for the logits to show it
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

void CpuBackend::MatMulExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                               const ExpertRouting& routing, MatrixView out) {
  if (x.empty() || out.empty()) return;
  const LinearShape& shape = experts[0].shape;
  BH_CHECK(shape.num_slices() == 1 && x.cols() == shape.cols && out.cols() == shape.rows);
  BH_CHECK(out.rows() == x.rows() * routing.experts_per_token);
  const int64_t panels = PanelsOf(shape);
  const int64_t work = out.rows() * shape.rows * shape.cols;
  const auto rows_of = [&](int e) -> int64_t {
    return routing.expert_begin[e + 1] - routing.expert_begin[e];
  };
  // Reading a panel takes about as long as multiplying four rows with it.
  const auto panel_cost = [&](int e) { return rows_of(e) + 4; };
  const auto panels_of = [&](int e) { return rows_of(e) > 0 ? panels : 0; };
  if (InInt8(shape)) {
    const QuantizedPanels cut = QuantizedPanelsOf(experts[0]);
    const Int8Runs runs(isa_, cut, mat_mul_scratch_.InputsFor(cut));
    ForExperts(
        *pool_, routing.num_experts, out.rows() * shape.cols,
        [&](int e) { return runs.UnitsOf(rows_of(e)); }, [](int) { return int64_t{1}; },
        [&](int, int e, int64_t begin, int64_t end) {
          const int64_t first = routing.expert_begin[e];
          runs.Quantize({x.F32(), x.row_stride(), routing.pair_token + first}, first, rows_of(e),
                        begin, end);
        });
    const auto multiply = BH_OF_ISA_OR_VNNI(isa_, MultiplyInt8);
    const auto multiply_in_tiles = BH_OF_AMX(isa_, MultiplyInt8InTiles);
    return ForExperts(*pool_, routing.num_experts, work, panels_of, panel_cost,
                      [&](int thread, int e, int64_t begin, int64_t end) {
                        const QuantizedPanels weight = QuantizedPanelsOf(experts[e]);
                        const int64_t first = routing.expert_begin[e];
                        const int64_t rows = rows_of(e);
                        const int64_t tiles = runs.TilesOf(rows);
                        const Int8Product product =
                            Int8ProductOf(experts[e], weight, runs.Of(first, rows), rows, tiles,
                                          out.Rows(first, rows));
                        const Int8Part part{begin, end, 0, tiles};
                        if (!product.x.by_row) return multiply(product, part);
                        multiply_in_tiles(product, part, mat_mul_scratch_.Of(thread));
                      });
  }
  const auto few = BH_OF_ISA(isa_, MultiplyFew);
  const auto many = BH_OF_ISA(isa_, MultiplyMany);
  ForExperts(*pool_, routing.num_experts, work, panels_of, panel_cost,
             [&](int thread, int e, int64_t begin, int64_t end) {
               const int64_t first = routing.expert_begin[e];
               const int64_t rows = rows_of(e);
               const int32_t* const tokens = routing.pair_token + first;
               float* const scratch = mat_mul_scratch_.Of(thread);
               QuantizedPanels panels_of_weight{};
               Product product = ProductOf(x, experts[e], out.Rows(first, rows), panels_of_weight);
               if (rows > BH_OF_ISA(isa_, kMaxFewRows)) {
                 product.x_rows = tokens;
                 return many(product, {begin, end, 0, rows, scratch});
               }
               for (int64_t row = 0; row < rows; ++row) {
                 std::copy_n(x.F32(tokens[row]), shape.cols, scratch + row * shape.cols);
               }
               product.x = scratch;
               product.x_stride = shape.cols;
               few(product, {begin, end, 0, rows, nullptr});
             });
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
