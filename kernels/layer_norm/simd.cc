#include "simd.h"
#include "kernels/simd/for_vectors.h"

namespace bulkhead::BH_ISA {

void LayerNormRow(const float* x, const float* weight, const float* bias, float epsilon,
                  int64_t size, float* out) {
  F32x16 sums = Zero();
  ForVectors(size, [&](int64_t i, auto vector) { sums = Add(sums, vector.Load(x + i)); });
  const F32x16 mean = Set1(SumLanes(sums) / static_cast<float>(size));
  F32x16 squares = Zero();
  ForVectors(size, [&](int64_t i, auto vector) {
    const F32x16 centred = Sub(vector.Load(x + i), mean);
    squares = vector.OrElse(Fma(centred, centred, squares), squares);
  });
  const float variance = SumLanes(squares) / static_cast<float>(size);
  const F32x16 scale = Set1(1.0f / __builtin_sqrtf(variance + epsilon));
  ForVectors(size, [&](int64_t i, auto vector) {
    const F32x16 centred = Sub(vector.Load(x + i), mean);
    const F32x16 normed = Mul(Mul(centred, scale), vector.Load(weight + i));
    vector.Store(out + i, bias == nullptr ? normed : Add(normed, vector.Load(bias + i)));
  });
}

}  // namespace bulkhead::BH_ISA
