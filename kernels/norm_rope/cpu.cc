#include "kernels/cpu/cpu_backend.h"
#include "kernels/rms_norm/op.h"

namespace bulkhead {

// One head [d] in place; rope [d]: d/2 cosines, d/2 sines.
BH_PER_ISA(void Rotate(const float* rope, int head_dim, float* x))

void CpuBackend::NormRope(const StepIndex& index, const HeadLayout& heads, ConstMatrixView q_norm,
                          ConstMatrixView k_norm, float epsilon, ConstMatrixView rope,
                          MatrixView qkv) {
  if (!HasHeads(index, heads, qkv)) return;
  const int d = heads.head_dim;
  const int64_t rotated = heads.num_heads + heads.num_kv_heads;  // heads per token
  const int64_t count = index.num_tokens * rotated;
  const auto norm_row = BH_OF_ISA(isa_, NormRow);
  const auto rotate = BH_OF_ISA(isa_, Rotate);
  pool_->ParallelForWork(count, count * d, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i / rotated;
      const int64_t head = i % rotated;
      float* x = qkv.F32(t) + head * d;
      const ConstMatrixView& norm = head < heads.num_heads ? q_norm : k_norm;
      if (!norm.empty()) norm_row(x, norm.F32(), epsilon, d, x);
      rotate(rope.F32(index.position[t]), d, x);
    }
  });
}

}  // namespace bulkhead
