#include "simd.h"
#include "kernels/simd/exp.h"

namespace bulkhead::BH_ISA {
namespace {

BH_INLINE F32x16 GatedUp(F32x16 gate, F32x16 up) {
  const F32x16 e = Exp(Min(gate, Sub(Zero(), gate)));
  const F32x16 numerator = Select(Less(gate, Zero()), Mul(gate, e), gate);
  return Mul(Div(numerator, Add(Set1(1.0f), e)), up);
}

}  // namespace

void Gated(const float* gate, const float* up, int64_t size, float* out) {
  const int64_t whole = size / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    Store(out + i, GatedUp(Load(gate + i), Load(up + i)));
  }
  const int rest = static_cast<int>(size - whole);
  if (rest > 0) {
    StoreN(out + whole, GatedUp(LoadN(gate + whole, rest), LoadN(up + whole, rest)), rest);
  }
}

}  // namespace bulkhead::BH_ISA
