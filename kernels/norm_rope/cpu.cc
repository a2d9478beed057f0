#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/norm_rope/op.h"
#include "kernels/rms_norm/op.h"

namespace bulkhead {
namespace {

float ScaleOfAllHeads(const HeadNorms& norms, int64_t token, bool is_q) {
  const float mean = norms.squares.F32(token)[is_q ? 0 : 1] /
                     static_cast<float>(is_q ? norms.q_size : norms.k_size);
  return 1.0F / std::sqrt(mean + norms.epsilon);
}

}  // namespace

void CpuBackend::NormRope(const StepIndex& index, const HeadLayout& heads, const HeadNorms& norms,
                          const Rotary& rotary, MatrixView qkv) {
  if (!HasHeads(index, heads, qkv)) return;
  const int d = heads.head_dim;
  const auto rotary_dim = static_cast<int>(rotary.table.cols());
  BH_CHECK(rotary_dim <= d && rotary_dim % 2 == 0);
  const int distance = (rotary.of_halves ? d : rotary_dim) / 2;
  const int64_t turned = heads.num_heads + heads.num_kv_heads;  // heads per token
  const int64_t visited = turned + (norms.values ? heads.num_kv_heads : 0);
  const int64_t count = index.num_tokens * visited;
  const auto norm_row = BH_OF_ISA(isa_, NormRow);
  const auto scale_row = BH_OF_ISA(isa_, ScaleRow);
  const auto rotate = BH_OF_ISA(isa_, Rotate);
  pool_->ParallelForWork(count, count * d, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i / visited;
      const int64_t head = i % visited;
      const bool is_q = head < heads.num_heads;
      const int position = index.position[t];
      float* x = qkv.F32(t) + head * d;
      if (head >= turned) {
        norm_row(x, nullptr, norms.epsilon, d, x);
        continue;
      }
      const ConstMatrixView& norm = is_q ? norms.q : norms.k;
      const auto norm_head = [&] {
        if (norms.without_weight) return norm_row(x, nullptr, norms.epsilon, d, x);
        if (norm.empty()) return;
        if (norms.squares.empty()) return norm_row(x, norm.F32(), norms.epsilon, d, x);
        const int64_t of_part = head - (is_q ? 0 : heads.num_heads);
        scale_row(x, ScaleOfAllHeads(norms, t, is_q), norm.F32() + of_part * d, d, x);
      };
      if (!norms.after_rotary) norm_head();
      if (rotary_dim > 0) {
        rotate(rotary.table.F32(position), rotary_dim, rotary.interleaved, distance, x);
      }
      if (norms.after_rotary) norm_head();
      if (is_q && !rotary.q_scale.empty()) {
        for (int j = 0; j < d; ++j) x[j] *= *rotary.q_scale.F32(position);
      }
    }
  });
}

void CpuBackend::RopeLatents(const StepIndex& index, const HeadLayout& heads, const Rotary& rotary,
                             ConstMatrixView q, MatrixView qkv) {
  if (!HasHeads(index, heads, qkv) || heads.num_heads == 0) return;
  const int64_t q_dim = q.cols() / heads.num_heads;
  const auto r = static_cast<int>(rotary.table.cols());
  BH_CHECK(q.rows() == qkv.rows() && q.cols() == q_dim * heads.num_heads);
  BH_CHECK(r <= q_dim && r <= heads.head_dim);
  const int64_t turned = heads.num_heads + heads.num_kv_heads;  // heads per token
  const int64_t count = index.num_tokens * turned;
  const auto rotate = BH_OF_ISA(isa_, Rotate);
  pool_->ParallelForWork(count, count * r, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i / turned;
      const int64_t head = i % turned;
      float* const x = qkv.F32(t) + (head + 1) * heads.head_dim - r;
      if (head < heads.num_heads) std::copy_n(q.F32(t) + (head + 1) * q_dim - r, r, x);
      rotate(rotary.table.F32(index.position[t]), r, rotary.interleaved, r / 2, x);
    }
  });
}

}  // namespace bulkhead
