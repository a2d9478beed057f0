#include "simd.h"
#include "kernels/rms_norm/op.h"

namespace bulkhead::BH_ISA {

float SumOfSquares(const float* x, int64_t size) {
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
  return SumLanes(lanes);
}

void ScaleRow(const float* x, float scale, const float* weight, int64_t size, float* out) {
  const int64_t whole = size / kLanes * kLanes;
  const int rest = static_cast<int>(size - whole);
  const F32x16 factor = Set1(scale);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const F32x16 scaled = Mul(Load(x + i), factor);
    Store(out + i, weight == nullptr ? scaled : Mul(scaled, Load(weight + i)));
  }
  if (rest > 0) {
    const F32x16 scaled = Mul(LoadN(x + whole, rest), factor);
    StoreN(out + whole, weight == nullptr ? scaled : Mul(scaled, LoadN(weight + whole, rest)),
           rest);
  }
}

void NormRow(const float* x, const float* weight, float epsilon, int64_t size, float* out) {
  const float mean = SumOfSquares(x, size) / static_cast<float>(size);
  ScaleRow(x, 1.0f / __builtin_sqrtf(mean + epsilon), weight, size, out);
}

}  // namespace bulkhead::BH_ISA
