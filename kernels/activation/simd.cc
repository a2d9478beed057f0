#include "simd.h"
#include "kernels/activation/op.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/for_vectors.h"

namespace bulkhead::BH_ISA {
namespace {

// x / (1 + exp(-y))
BH_INLINE F32x16 TimesSigmoid(F32x16 x, F32x16 y) {
  const F32x16 e = Exp(Min(y, Sub(Zero(), y)));
  const F32x16 numerator = Select(Less(y, Zero()), Mul(x, e), x);
  return Div(numerator, Add(Set1(1.0f), e));
}

template <Activation kActivation>
BH_INLINE F32x16 Activated(F32x16 x) {
  if constexpr (kActivation == Activation::kSilu) {
    return TimesSigmoid(x, x);
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    return TimesSigmoid(x, Mul(x, Fma(Mul(x, x), Set1(kGeluCubic), Set1(kGeluLinear))));
  } else if constexpr (kActivation == Activation::kSigmoid) {
    return TimesSigmoid(Set1(1.0f), x);
  } else {
    const F32x16 positive = Select(Less(x, Zero()), Zero(), x);
    return Mul(positive, positive);
  }
}

template <Activation kActivation>
BH_INLINE void Row(const float* x, const float* up, int64_t size, float* out) {
  ForVectors(size, [&](int64_t i, auto vector) {
    const F32x16 value = Activated<kActivation>(vector.Load(x + i));
    vector.Store(out + i, up == nullptr ? value : Mul(value, vector.Load(up + i)));
  });
}

}  // namespace

void ActivateRow(Activation activation, const float* x, const float* up, int64_t size, float* out) {
  switch (activation) {
    case Activation::kSilu:
      return Row<Activation::kSilu>(x, up, size, out);
    case Activation::kGeluTanh:
      return Row<Activation::kGeluTanh>(x, up, size, out);
    case Activation::kReluSquared:
      return Row<Activation::kReluSquared>(x, up, size, out);
    case Activation::kSigmoid:
      return Row<Activation::kSigmoid>(x, up, size, out);
  }
}

void ClampedSwigluRow(float alpha, float limit, const float* gate_up, int64_t size, float* out) {
  const F32x16 most = Set1(limit);
  ForVectors(size, [&](int64_t i, auto vector) {
    float gates[kLanes] = {};
    float ups[kLanes] = {};
    const int64_t count = size - i < kLanes ? size - i : kLanes;
    for (int64_t lane = 0; lane < count; ++lane) {
      gates[lane] = gate_up[2 * (i + lane)];
      ups[lane] = gate_up[2 * (i + lane) + 1];
    }
    const F32x16 gate = Select(Less(most, Load(gates)), most, Load(gates));
    const F32x16 least = Sub(Zero(), most);
    F32x16 up = Select(Less(most, Load(ups)), most, Load(ups));
    up = Select(Less(up, least), least, up);
    const F32x16 glu = TimesSigmoid(gate, Mul(gate, Set1(alpha)));
    vector.Store(out + i, Mul(glu, Add(up, Set1(1.0f))));
  });
}

}  // namespace bulkhead::BH_ISA
