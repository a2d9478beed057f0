#include <algorithm>
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
Pair PairAt(const Rotary& rotary, int64_t head_dim, int i) {
  if (rotary.interleaved) return {2 * i, 2 * i + 1};
  const int64_t paired = rotary.of_halves ? head_dim : rotary.table.cols();
  return {i, i + static_cast<int>(paired) / 2};
}

// out1 = fma(-x2, s, x1 * c), out2 = fma(x2, c, x1 * s)
void RotateInOrder(const Rotary& rotary, int position, int64_t head_dim, float* x) {
  const int half = static_cast<int>(rotary.table.cols()) / 2;
  for (int i = 0; i < half; ++i) {
    const float c = rotary.table.F32(position)[i];
    const float s = rotary.table.F32(position)[half + i];
    const auto [first, second] = PairAt(rotary, head_dim, i);
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
    const auto [first, second] = PairAt(rotary, static_cast<int64_t>(x.size()), i);
    const double x1 = x[first];
    const double x2 = x[second];
    x[first] = x1 * c - x2 * s;
    x[second] = x2 * c + x1 * s;
  }
}

// One head of one token and its norm.
struct Head {
  const HeadNorms& norms;
  bool is_q;
  int64_t token;
  int64_t index;  // among the heads of q or k

  ConstMatrixView Weight() const { return is_q ? norms.q : norms.k; }
  bool IsNormed() const { return norms.without_weight || !Weight().empty(); }
  float WeightAt(int64_t i, int64_t d) const {
    if (norms.without_weight) return 1;
    return Weight().F32()[norms.squares.empty() ? i : index * d + i];
  }
  float Squares() const { return norms.squares.F32(token)[is_q ? 0 : 1]; }
  int64_t Size() const { return is_q ? norms.q_size : norms.k_size; }
};

void NormHeadInOrder(const Head& head, int d, float* x) {
  if (!head.IsNormed()) return;
  const float mean = head.norms.squares.empty() ? SumOfSquaresInOrder(x, d) / static_cast<float>(d)
                                                : head.Squares() / static_cast<float>(head.Size());
  const float scale = 1.0f / std::sqrt(mean + head.norms.epsilon);
  for (int i = 0; i < d; ++i) x[i] = x[i] * scale * head.WeightAt(i, d);
}

void NormHeadInDouble(const Head& head, std::vector<double>& x) {
  if (!head.IsNormed()) return;
  const auto d = static_cast<int64_t>(x.size());
  double mean = 0;
  if (head.norms.squares.empty()) {
    for (const double value : x) mean += value * value / static_cast<double>(d);
  } else {
    mean = double{head.Squares()} / static_cast<double>(head.Size());
  }
  const double scale = 1 / std::sqrt(mean + head.norms.epsilon);
  for (int64_t i = 0; i < d; ++i) x[i] *= scale * head.WeightAt(i, d);
}

void NormValues(bool in_order, const HeadLayout& heads, float epsilon, MatrixView qkv) {
  HeadNorms without_weight{{}, {}, epsilon};
  without_weight.without_weight = true;
  const int64_t d = heads.head_dim;
  for (int64_t t = 0; t < qkv.rows(); ++t) {
    for (int i = 0; i < heads.num_kv_heads; ++i) {
      float* const x = qkv.F32(t) + (heads.num_heads + heads.num_kv_heads + i) * d;
      const Head head{without_weight, false, t, i};
      if (in_order) {
        NormHeadInOrder(head, heads.head_dim, x);
        continue;
      }
      std::vector<double> row(x, x + d);
      NormHeadInDouble(head, row);
      for (int64_t c = 0; c < d; ++c) x[c] = static_cast<float>(row[c]);
    }
  }
}

}  // namespace

void ReferenceBackend::NormRope(const StepIndex& index, const HeadLayout& heads,
                                const HeadNorms& norms, const Rotary& rotary, MatrixView qkv) {
  const int d = heads.head_dim;
  if (norms.values) NormValues(in_order_, heads, norms.epsilon, qkv);
  for (int t = 0; t < index.num_tokens; ++t) {
    const int position = index.position[t];
    for (int head = 0; head < heads.num_heads + heads.num_kv_heads; ++head) {
      const bool is_q = head < heads.num_heads;
      float* x = qkv.F32(t) + int64_t{head} * d;
      const Head normed{norms, is_q, t, is_q ? head : head - heads.num_heads};
      const float scale = is_q && !rotary.q_scale.empty() ? *rotary.q_scale.F32(position) : 1.0f;
      if (in_order_) {
        if (!norms.after_rotary) NormHeadInOrder(normed, d, x);
        RotateInOrder(rotary, position, d, x);
        if (norms.after_rotary) NormHeadInOrder(normed, d, x);
        for (int i = 0; i < d; ++i) x[i] *= scale;
      } else {
        std::vector<double> row(x, x + d);
        if (!norms.after_rotary) NormHeadInDouble(normed, row);
        RotateInDouble(rotary, position, row);
        if (norms.after_rotary) NormHeadInDouble(normed, row);
        for (int i = 0; i < d; ++i) x[i] = static_cast<float>(row[i] * scale);
      }
    }
  }
}

void ReferenceBackend::RopeLatents(const StepIndex& index, const HeadLayout& heads,
                                   const Rotary& rotary, ConstMatrixView q, MatrixView qkv) {
  if (heads.num_heads == 0) return;
  const int64_t q_dim = q.cols() / heads.num_heads;
  const int64_t r = rotary.table.cols();
  for (int t = 0; t < index.num_tokens; ++t) {
    for (int head = 0; head < heads.num_heads + heads.num_kv_heads; ++head) {
      float* const x = qkv.F32(t) + (int64_t{head} + 1) * heads.head_dim - r;
      if (head < heads.num_heads) std::copy_n(q.F32(t) + (head + 1) * q_dim - r, r, x);
      if (in_order_) {
        RotateInOrder(rotary, index.position[t], r, x);
        continue;
      }
      std::vector<double> row(x, x + r);
      RotateInDouble(rotary, index.position[t], row);
      for (int64_t i = 0; i < r; ++i) x[i] = static_cast<float>(row[i]);
    }
  }
}

}  // namespace bulkhead
