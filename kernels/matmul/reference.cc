#include <cmath>
#include <vector>

#include "kernels/matmul/input_quantizer.h"
#include "kernels/reference/ordered_math.h"
#include "kernels/reference/quantized_weight.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/simd/number_format.h"

namespace bulkhead {
namespace {

// fma(x_k, w_k, acc) over ascending k in [begin, end), from +0; an empty slice is -0.0.
float Chain(const float* x, const float* weight, int64_t begin, int64_t end) {
  if (begin == end) return -0.0f;
  float acc = 0.0f;
  for (int64_t k = begin; k < end; ++k) acc = std::fma(x[k], weight[k], acc);
  return acc;
}

float PairChain(const float* x, const float* weight, int64_t begin, int64_t end) {
  return begin == end ? -0.0f : ordered::PairChain(x, weight, begin, end);
}

float TileChain(const float* x, const float* weight, int64_t begin, int64_t end) {
  return begin == end ? -0.0f : ordered::TileChain(x, weight, begin, end);
}

// One chain over the cells of each slice.
void VisitInInt8(const Linear& linear, ConstMatrixView x,
                 ReferenceBackend::SliceSumsVisitor visit) {
  const QuantizedWeight weight(linear);
  const std::vector<WeightCell>& cells = weight.cells();
  const std::vector<int64_t>& borders = linear.shape.k_borders;
  std::vector<int8_t> inputs(x.cols());
  std::vector<InputScaling> scalings(cells.size());
  std::vector<float> sums(borders.size() - 1);
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (size_t i = 0; i < cells.size(); ++i) {
      const auto size = static_cast<size_t>(cells[i].size());
      scalings[i] =
          QuantizeInputs({x.F32(t) + cells[i].begin, size}, {inputs.data() + cells[i].begin, size});
    }
    for (int64_t n = 0; n < linear.shape.rows; ++n) {
      for (size_t slice = 0; slice < sums.size(); ++slice) {
        sums[slice] = borders[slice] == borders[slice + 1] ? -0.0f : 0.0f;
      }
      for (size_t i = 0; i < cells.size(); ++i) {
        const WeightScaling scaling = weight.ScalingOf(n, static_cast<int64_t>(i));
        int32_t sum = -int32_t{scaling.zero} * scalings[i].sum;
        for (int64_t k = cells[i].begin; k < cells[i].end; ++k) {
          sum += int32_t{weight.codes(n)[k]} * inputs[k];
        }
        float& acc = sums[cells[i].slice];
        acc = std::fma(static_cast<float>(sum), scaling.Scale() * scalings[i].scale, acc);
      }
      visit(t, n, sums);
    }
  }
}

}  // namespace

float ReferenceBackend::Join(std::vector<float>& sums) {
  for (size_t width = 1; width < sums.size(); width *= 2) {
    for (size_t i = 0; i < sums.size(); i += 2 * width) sums[i] += sums[i + width];
  }
  return sums[0];
}

void ReferenceBackend::VisitSliceSums(const Linear& weight, ConstMatrixView x,
                                      SliceSumsVisitor visit) const {
  const bool in_int8 = activation_ == ActivationDType::kInt8;
  if (in_int8 && HasIntegerCodes(weight.shape.format) && weight.shape.groups.indexed == 0) {
    return VisitInInt8(weight, x, visit);
  }
  const bool in_pairs = activation_ == ActivationDType::kBf16;
  const bool in_bf16 = (in_pairs || activation_ == ActivationDType::kBf16Amx) &&
                       weight.shape.format == WeightFormat::kBF16;
  const auto chain = !in_bf16 ? Chain : in_pairs ? PairChain : TileChain;
  const std::vector<int64_t>& borders = weight.shape.k_borders;
  std::vector<float> row(x.cols());
  std::vector<float> rounded(x.cols());
  std::vector<float> sums(borders.size() - 1);
  for (int64_t n = 0; n < weight.shape.rows; ++n) {
    WeightRow(weight, n, row.data());
    for (int64_t t = 0; t < x.rows(); ++t) {
      for (int64_t k = 0; in_bf16 && k < x.cols(); ++k) {
        const float input = x.F32(t)[k];
        rounded[k] = in_pairs ? ordered::RoundFlushed(input) : F32OfBf16(Bf16OfF32(input));
      }
      for (size_t slice = 0; slice < sums.size(); ++slice) {
        sums[slice] = chain(in_bf16 ? rounded.data() : x.F32(t), row.data(), borders[slice],
                            borders[slice + 1]);
      }
      visit(t, n, sums);
    }
  }
}

double ReferenceBackend::DotInDouble(const float* x, const std::vector<float>& weight) {
  double sum = 0;
  for (size_t i = 0; i < weight.size(); ++i) sum += double{x[i]} * weight[i];
  return sum;
}

void ReferenceBackend::MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) {
  if (x.empty()) return;
  if (in_order_) {
    return VisitSliceSums(weight, x, [&](int64_t t, int64_t n, std::vector<float>& sums) {
      out.F32(t)[n] = Join(sums);
    });
  }
  std::vector<float> row(x.cols());
  for (int64_t n = 0; n < out.cols(); ++n) {
    WeightRow(weight, n, row.data());
    for (int64_t t = 0; t < x.rows(); ++t) {
      out.F32(t)[n] = static_cast<float>(DotInDouble(x.F32(t), row));
    }
  }
}

}  // namespace bulkhead
