#include "simd.h"
#include "kernels/experts/op.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/for_vectors.h"

namespace bulkhead::BH_ISA {

float ScoreExperts(RouterScoring scoring, const float* logits, int64_t num_experts, float* scores) {
  if (scoring == RouterScoring::kSigmoid) {
    ForVectors(num_experts, [&](int64_t i, auto vector) {
      const F32x16 x = vector.Load(logits + i);
      const F32x16 e = Exp(Min(x, Sub(Zero(), x)));
      vector.Store(scores + i, Div(Select(Less(x, Zero()), e, Set1(1.0f)), Add(Set1(1.0f), e)));
    });
    return 1.0f;
  }
  float most = logits[0];
  for (int64_t i = 1; i < num_experts; ++i) {
    if (logits[i] > most) most = logits[i];
  }
  F32x16 sum = Zero();
  ForVectors(num_experts, [&](int64_t i, auto vector) {
    const F32x16 e = Exp(Sub(vector.Load(logits + i), Set1(most)));
    vector.Store(scores + i, e);
    sum = vector.OrElse(Add(sum, e), sum);
  });
  return SumLanes(sum);
}

}  // namespace bulkhead::BH_ISA
