#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/activation/op.h"
#include "kernels/reference/ordered_math.h"
#include "kernels/reference/reference_backend.h"

namespace bulkhead {
namespace {

// x / (1 + exp(-y)); e = Exp(-|y|), then (y < 0 ? x * e : x) / (1 + e): no overflow
float TimesSigmoid(float x, float y) {
  const float e = ordered::Exp(-std::fabs(y));
  return (y < 0.0f ? x * e : x) / (1.0f + e);
}

float InOrder(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return TimesSigmoid(x, x);
    case Activation::kGeluTanh:
      return TimesSigmoid(x, x * std::fma(x * x, kGeluCubic, kGeluLinear));
    case Activation::kReluSquared: {
      const float positive = x < 0.0f ? 0.0f : x;
      return positive * positive;
    }
    case Activation::kSigmoid:
      return TimesSigmoid(1.0F, x);
  }
  BH_CHECK(false);
}

double InDouble(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kReluSquared:
      return x < 0 ? 0 : x * x;
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
  }
  BH_CHECK(false);
}

}  // namespace

void ReferenceBackend::GatedActivation(Activation activation, ConstMatrixView gate_up,
                                       MatrixView out) {
  for (int64_t t = 0; t < out.rows(); ++t) {
    const float* gate = gate_up.F32(t);
    const float* up = gate + out.cols();
    for (int64_t i = 0; i < out.cols(); ++i) {
      out.F32(t)[i] = in_order_ ? InOrder(activation, gate[i]) * up[i]
                                : static_cast<float>(InDouble(activation, gate[i]) * up[i]);
    }
  }
}

void ReferenceBackend::ClampedSwiglu(float alpha, float limit, ConstMatrixView gate_up,
                                     MatrixView out) {
  for (int64_t t = 0; t < out.rows(); ++t) {
    for (int64_t i = 0; i < out.cols(); ++i) {
      const float gate = gate_up.F32(t)[2 * i] > limit ? limit : gate_up.F32(t)[2 * i];
      float up = gate_up.F32(t)[2 * i + 1] > limit ? limit : gate_up.F32(t)[2 * i + 1];
      up = up < -limit ? -limit : up;
      const double exact = gate / (1 + std::exp(-double{alpha} * gate)) * (up + 1.0);
      out.F32(t)[i] =
          in_order_ ? TimesSigmoid(gate, gate * alpha) * (up + 1.0F) : static_cast<float>(exact);
    }
  }
}

void ReferenceBackend::Activate(Activation activation, ConstMatrixView x, MatrixView out) {
  for (int64_t t = 0; t < out.rows(); ++t) {
    for (int64_t i = 0; i < out.cols(); ++i) {
      const float value = x.F32(t)[i];
      out.F32(t)[i] =
          in_order_ ? InOrder(activation, value) : static_cast<float>(InDouble(activation, value));
    }
  }
}

}  // namespace bulkhead
