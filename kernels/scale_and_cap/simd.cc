#include "simd.h"
#include "kernels/simd/for_vectors.h"
#include "kernels/simd/soft_cap.h"

namespace bulkhead::BH_ISA {

void ScaleAndCapRow(float scale, float soft_cap, int64_t size, float* x) {
  ForVectors(size, [&](int64_t i, auto vector) {
    const F32x16 scaled = Mul(vector.Load(x + i), Set1(scale));
    vector.Store(x + i, soft_cap == 0.0f ? scaled : SoftCap(scaled, soft_cap));
  });
}

}  // namespace bulkhead::BH_ISA
