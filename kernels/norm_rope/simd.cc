#include "simd.h"

namespace bulkhead::BH_ISA {

void Rotate(const float* rope, int head_dim, float* x) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; i += kLanes) {
    const int n = half - i < kLanes ? half - i : kLanes;
    const F32x16 c = LoadN(rope + i, n);
    const F32x16 s = LoadN(rope + half + i, n);
    const F32x16 x1 = LoadN(x + i, n);
    const F32x16 x2 = LoadN(x + half + i, n);
    StoreN(x + i, Fnma(x2, s, Mul(x1, c)), n);
    StoreN(x + half + i, Fma(x2, c, Mul(x1, s)), n);
  }
}

}  // namespace bulkhead::BH_ISA
