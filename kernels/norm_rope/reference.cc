#include <cmath>
#include <vector>

#include "kernels/reference/reference_backend.h"
#include "kernels/rms_norm/reference.h"

namespace bulkhead {
namespace {

// Columns of pair i.
struct Pair {
  int first;
  int second;
};
Pair PairAt(const Rotary& rotary, int i) {
  if (rotary.interleaved) return {2 * i, 2 * i + 1};
  return {i, i + static_cast<int>(rotary.table.cols()) / 2};
}

// out1 = fma(-x2, s, x1 * c), out2 = fma(x2, c, x1 * s)
void RotateInOrder(const Rotary& rotary, int position, float* x) {
  const int half = static_cast<int>(rotary.table.cols()) / 2;
  for (int i = 0; i < half; ++i) {
    const float c = rotary.table.F32(position)[i];
    const float s = rotary.table.F32(position)[half + i];
    const auto [first, second] = PairAt(rotary, i);
    const float x1 = x[first];
    const float x2 = x[second];
    x[first] = std::fma(-x2, s, x1 * c);
    x[second] = std::fma(x2, c, x1 * s);
  }
}

void RotateInDouble(const Rotary& rotary, int position, std::vector<double>& x) {
  const int half = static_cast<int>(rotary.table.cols()) / 2;
  for (int i = 0; i < half; ++i) {
    const double c = rotary.table.F32(position)[i];
    const double s = rotary.table.F32(position)[half + i];
    const auto [first, second] = PairAt(rotary, i);
    const double x1 = x[first];
    const double x2 = x[second];
    x[first] = x1 * c - x2 * s;
    x[second] = x2 * c + x1 * s;
  }
}

std::vector<double> NormInDouble(const std::vector<double>& x, ConstMatrixView weight,
                                 float epsilon) {
  if (weight.empty()) return x;
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  std::vector<double> out = x;
  for (size_t i = 0; i < x.size(); ++i) out[i] *= scale * weight.F32()[i];
  return out;
}

}  // namespace

void ReferenceBackend::NormRope(const StepIndex& index, const HeadLayout& heads,
                                const HeadNorms& norms, const Rotary& rotary, MatrixView qkv) {
  const int d = heads.head_dim;
  for (int t = 0; t < index.num_tokens; ++t) {
    const int position = index.position[t];
    for (int head = 0; head < heads.num_heads + heads.num_kv_heads; ++head) {
      const bool is_q = head < heads.num_heads;
      float* x = qkv.F32(t) + int64_t{head} * d;
      const ConstMatrixView norm = is_q ? norms.q : norms.k;
      const float scale = is_q && !rotary.q_scale.empty() ? *rotary.q_scale.F32(position) : 1.0f;
      if (in_order_) {
        const auto norm_head = [&] {
          if (!norm.empty()) NormInOrder(x, norm, norms.epsilon, d, x);
        };
        if (!norms.after_rotary) norm_head();
        RotateInOrder(rotary, position, x);
        if (norms.after_rotary) norm_head();
        for (int i = 0; i < d; ++i) x[i] *= scale;
      } else {
        std::vector<double> row(x, x + d);
        if (!norms.after_rotary) row = NormInDouble(row, norm, norms.epsilon);
        RotateInDouble(rotary, position, row);
        if (norms.after_rotary) row = NormInDouble(row, norm, norms.epsilon);
        for (int i = 0; i < d; ++i) x[i] = static_cast<float>(row[i] * scale);
      }
    }
  }
}

}  // namespace bulkhead
