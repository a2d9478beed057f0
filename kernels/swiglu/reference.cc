#include <cmath>

#include "kernels/reference/ordered_math.h"
#include "kernels/reference/reference_backend.h"

namespace bulkhead {
namespace {

// e = Exp(-|gate|), then ((gate < 0 ? gate * e : gate) / (1 + e)) * up: no overflow
float GatedInOrder(float gate, float up) {
  const float e = ordered::Exp(-std::fabs(gate));
  return (gate < 0.0f ? gate * e : gate) / (1.0f + e) * up;
}

float GatedInDouble(float gate, float up) {
  return static_cast<float>(gate / (1 + std::exp(-double{gate})) * up);
}

}  // namespace

void ReferenceBackend::SwiGlu(ConstMatrixView gate_up, MatrixView out) {
  for (int64_t t = 0; t < out.rows(); ++t) {
    const float* gate = gate_up.F32(t);
    const float* up = gate + out.cols();
    for (int64_t i = 0; i < out.cols(); ++i) {
      out.F32(t)[i] = in_order_ ? GatedInOrder(gate[i], up[i]) : GatedInDouble(gate[i], up[i]);
    }
  }
}

}  // namespace bulkhead
