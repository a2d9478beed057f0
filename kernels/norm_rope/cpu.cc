#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/rms_norm/op.h"

namespace bulkhead {

// The first `rotary_dim` columns of one head, in place; rope [rotary_dim]: cosines, then sines.
BH_PER_ISA(void Rotate(const float* rope, int rotary_dim, bool interleaved, float* x))

void CpuBackend::NormRope(const StepIndex& index, const HeadLayout& heads, const HeadNorms& norms,
                          const Rotary& rotary, MatrixView qkv) {
  if (!HasHeads(index, heads, qkv)) return;
  const int d = heads.head_dim;
  const auto rotary_dim = static_cast<int>(rotary.table.cols());
  BH_CHECK(rotary_dim <= d && rotary_dim % 2 == 0);
  const int64_t turned = heads.num_heads + heads.num_kv_heads;  // heads per token
  const int64_t count = index.num_tokens * turned;
  const auto norm_row = BH_OF_ISA(isa_, NormRow);
  const auto rotate = BH_OF_ISA(isa_, Rotate);
  pool_->ParallelForWork(count, count * d, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i / turned;
      const bool is_q = i % turned < heads.num_heads;
      const int position = index.position[t];
      float* x = qkv.F32(t) + i % turned * d;
      const ConstMatrixView& norm = is_q ? norms.q : norms.k;
      const auto norm_head = [&] {
        if (!norm.empty()) norm_row(x, norm.F32(), norms.epsilon, d, x);
      };
      if (!norms.after_rotary) norm_head();
      if (rotary_dim > 0) rotate(rotary.table.F32(position), rotary_dim, rotary.interleaved, x);
      if (norms.after_rotary) norm_head();
      if (is_q && !rotary.q_scale.empty()) {
        for (int j = 0; j < d; ++j) x[j] *= *rotary.q_scale.F32(position);
      }
    }
  });
}

}  // namespace bulkhead
