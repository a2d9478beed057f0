#include "simd.h"
#include "kernels/rms_norm/op.h"

namespace bulkhead::BH_ISA {

void NormRow(const float* x, const float* weight, float epsilon, int64_t size, float* out) {
  const int64_t whole = size / kLanes * kLanes;
  const int rest = static_cast<int>(size - whole);
  F32x16 lanes = Zero();
  for (int64_t i = 0; i < whole; i += kLanes) {
    const F32x16 v = Load(x + i);
    lanes = Fma(v, v, lanes);
  }
  if (rest > 0) {
    const F32x16 v = LoadN(x + whole, rest);
    lanes = Fma(v, v, lanes);
  }
  const float mean = SumLanes(lanes) / static_cast<float>(size);
  const F32x16 scale = Set1(1.0f / __builtin_sqrtf(mean + epsilon));
  for (int64_t i = 0; i < whole; i += kLanes) {
    Store(out + i, Mul(Mul(Load(x + i), scale), Load(weight + i)));
  }
  if (rest > 0) {
    const F32x16 scaled = Mul(LoadN(x + whole, rest), scale);
    StoreN(out + whole, Mul(scaled, LoadN(weight + whole, rest)), rest);
  }
}

}  // namespace bulkhead::BH_ISA
