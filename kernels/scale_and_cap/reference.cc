#include <cmath>

#include "kernels/reference/ordered_math.h"
#include "kernels/reference/reference_backend.h"

namespace bulkhead {

void ReferenceBackend::ScaleAndCap(float scale, float soft_cap, MatrixView x) {
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t i = 0; i < x.cols(); ++i) {
      float& value = x.F32(t)[i];
      if (in_order_ || soft_cap == 0.0f) {
        value = ordered::SoftCap(value * scale, soft_cap);
      } else {
        value = static_cast<float>(soft_cap * std::tanh(double{value} * scale / soft_cap));
      }
    }
  }
}

void ReferenceBackend::ScaleBy(const float* factor, MatrixView x) {
  if (!x.empty()) ScaleAndCap(*factor, 0.0f, x);
}

}  // namespace bulkhead
