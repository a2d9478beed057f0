#include <cmath>

#include "kernels/reference/reference_backend.h"
#include "kernels/rms_norm/reference.h"

namespace bulkhead {
namespace {

// out1 = fma(-x2, s, x1 * c), out2 = fma(x2, c, x1 * s)
void RotateInOrder(const float* rope, int half, float* x) {
  for (int i = 0; i < half; ++i) {
    const float x1 = x[i];
    const float x2 = x[half + i];
    x[i] = std::fma(-x2, rope[half + i], x1 * rope[i]);
    x[half + i] = std::fma(x2, rope[i], x1 * rope[half + i]);
  }
}

void RotateInDouble(const std::vector<double>& row, const float* rope, int half, float* x) {
  for (int i = 0; i < half; ++i) {
    x[i] = static_cast<float>(row[i] * rope[i] - row[half + i] * rope[half + i]);
    x[half + i] = static_cast<float>(row[half + i] * rope[i] + row[i] * rope[half + i]);
  }
}

}  // namespace

void ReferenceBackend::NormRope(const StepIndex& index, const HeadLayout& heads,
                                ConstMatrixView q_norm, ConstMatrixView k_norm, float epsilon,
                                ConstMatrixView rope, MatrixView qkv) {
  const int d = heads.head_dim;
  for (int t = 0; t < index.num_tokens; ++t) {
    const float* turn = rope.F32(index.position[t]);
    for (int head = 0; head < heads.num_heads + heads.num_kv_heads; ++head) {
      float* x = qkv.F32(t) + int64_t{head} * d;
      const ConstMatrixView norm = head < heads.num_heads ? q_norm : k_norm;
      if (in_order_) {
        if (!norm.empty()) NormInOrder(x, norm, epsilon, d, x);
        RotateInOrder(turn, d / 2, x);
      } else {
        RotateInDouble(NormInDouble(x, norm, epsilon, d), turn, d / 2, x);
      }
    }
  }
}

}  // namespace bulkhead
