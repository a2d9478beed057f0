// Norms, rotary embedding, SwiGlu and the cache's appends. All bound by memory or by their caller's
// caches; the orders of their sums are those of kernels/reference/ordered_backend.cc.
#include "kernels/cpu/row_kernels.h"

#include <stdint.h>

#include "kernels/cpu/append_kv.h"
#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/row_kernels_math.h"
#include "simd.h"

namespace bulkhead::BH_ISA {
namespace {

void RmsNorm(const float* x, const float* weight, float epsilon, int64_t size, float* out) {
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

void Rope(const float* rope, int head_dim, float* x) {
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

BH_INLINE F32x16 GatedUp(F32x16 gate, F32x16 up) {
  const F32x16 e = Exp(Min(gate, Sub(Zero(), gate)));
  const F32x16 numerator = Select(Less(gate, Zero()), Mul(gate, e), gate);
  return Mul(Div(numerator, Add(Set1(1.0f), e)), up);
}

void SwiGlu(const float* gate, const float* up, int64_t size, float* out) {
  const int64_t whole = size / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    Store(out + i, GatedUp(Load(gate + i), Load(up + i)));
  }
  const int rest = static_cast<int>(size - whole);
  if (rest > 0) {
    StoreN(out + whole, GatedUp(LoadN(gate + whole, rest), LoadN(up + whole, rest)), rest);
  }
}

}  // namespace

extern const RowKernels kRowKernels;
const RowKernels kRowKernels = {RmsNorm, Rope, SwiGlu, AppendToken, AttendUnit, MergeUnit};

}  // namespace bulkhead::BH_ISA
