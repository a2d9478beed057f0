#include "kernels/gated_delta/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/portable_math.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/gated_delta/op.h"
#include "kernels/rms_norm/op.h"

namespace bulkhead {
namespace {

int64_t ThreadFloats(int64_t key_dim, int64_t padded_value_dim) {
  return kStateBlock * (3 * key_dim + 2 * kStateBlock + 2 * padded_value_dim);
}

}  // namespace

CpuDeltaScratch::CpuDeltaScratch(const StepLimits& limits, BumpAllocator& allocator)
    : key_dim(limits.delta_key_dim), padded_value_dim(RoundUp(limits.delta_value_dim, 16)) {
  if (key_dim == 0) return;
  const int64_t count = kMaxThreads * ThreadFloats(key_dim, padded_value_dim);
  floats = reinterpret_cast<float*>(allocator.Next(count * static_cast<int64_t>(sizeof(float))));
}

CpuDeltaScratch::OfThread CpuDeltaScratch::Of(int thread) const {
  OfThread of;
  of.normed = floats + thread * ThreadFloats(key_dim, padded_value_dim);
  of.dots = of.normed + 2 * kStateBlock * key_dim;
  of.state = of.dots + 2 * kStateBlock * kStateBlock;
  of.weighed = of.state + 2 * kStateBlock * padded_value_dim;
  return of;
}

float DeltaRate(float a_log) { return static_cast<float>(ExpOf(std::clamp(a_log, -80.0F, 80.0F))); }

double DeltaDecay(float rate, float a, float dt_bias) {
  return -static_cast<double>(rate) * Softplus(static_cast<double>(a + dt_bias));
}

float DeltaBeta(float b) { return static_cast<float>(SigmoidOf(b)); }

namespace {

// The arguments of a call, for its threads.
struct DeltaCall {
  Isa isa;
  const StepIndex& index;
  const GatedDeltaWeights& weights;
  ConstMatrixView qkv;
  ConstMatrixView ba;
  const StateLayerView& state;
  MatrixView out;

  const DeltaHeads& heads() const { return state.geometry.heads; }
};

// Tokens of one sequence in one block.
struct DeltaPiece {
  int64_t slot;
  int64_t row;  // its first row
  int first;    // in the block
  int count;
  bool has_state;
};

// Normed keys and queries, and the keys' columns in the state.
void NormHeads(const DeltaCall& call, const DeltaPiece& piece, int64_t key_head,
               const CpuDeltaScratch::OfThread& scratch) {
  const auto sum_of_squares = BH_OF_ISA(call.isa, SumOfSquares);
  const auto scale_row = BH_OF_ISA(call.isa, ScaleRow);
  const int64_t d = call.heads().key_dim;
  const int64_t key_begin = call.heads().num_key_heads * d;
  const float q_scale = 1.0F / std::sqrt(static_cast<float>(d));
  float* const keys = call.state.Keys(piece.slot, key_head);
  for (int t = 0; t < piece.count; ++t) {
    const float* const q = call.qkv.F32(piece.row + t) + key_head * d;
    const float* const k = q + key_begin;
    float* const normed_k = scratch.normed + t * d;
    const auto norm = [&](const float* x, float scale, float* out) {
      const float inverse = 1.0F / std::sqrt(sum_of_squares(x, d) + kDeltaNormEpsilon);
      scale_row(x, inverse * scale, nullptr, d, out);
    };
    norm(k, 1, normed_k);
    norm(q, q_scale, normed_k + piece.count * d);
    for (int64_t i = 0; i < d; ++i) keys[i * kStateBlock + piece.first + t] = normed_k[i];
  }
}

void RunValueHead(const DeltaCall& call, const DeltaPiece& piece, int64_t key_head, int64_t head,
                  const CpuDeltaScratch::OfThread& scratch) {
  const auto multiply = BH_OF_ISA(call.isa, MultiplyDelta);
  const DeltaHeads& heads = call.heads();
  const int64_t d = heads.key_dim;
  const int64_t padded = call.state.geometry.padded_value_dim();
  double* const decays = call.state.Decays(piece.slot, head);
  float* const matrix = call.state.Matrix(piece.slot, head);
  float* const corrected = call.state.Corrected(piece.slot, head);
  const float rate = DeltaRate(call.weights.a_log.F32()[head]);
  float beta[kStateBlock];
  for (int t = 0; t < piece.count; ++t) {
    const float* const ba = call.ba.F32(piece.row + t);
    const int at = piece.first + t;
    beta[t] = DeltaBeta(ba[head]);
    decays[at] = (at == 0 ? 0 : decays[at - 1]) + DeltaDecay(rate, ba[heads.num_value_heads + head],
                                                             call.weights.dt_bias.F32()[head]);
  }
  if (piece.has_state) {
    multiply({scratch.normed, 2 * piece.count, d, matrix, padded, padded, nullptr, scratch.state,
              padded});
  }
  const float* const v =
      call.qkv.F32(piece.row) + 2 * heads.num_key_heads * d + head * heads.value_dim;
  float* const out = call.out.F32(piece.row) + head * heads.value_dim;
  BH_OF_ISA(call.isa, SolveDelta)
  ({.first = piece.first,
    .count = piece.count,
    .decays = decays,
    .beta = beta,
    .k_dot = scratch.dots,
    .q_dot = scratch.dots + piece.count * kStateBlock,
    .k_state = piece.has_state ? scratch.state : nullptr,
    .q_state = piece.has_state ? scratch.state + piece.count * padded : nullptr,
    .value_dim = heads.value_dim,
    .v = v,
    .v_stride = call.qkv.row_stride(),
    .corrected = corrected,
    .out = out,
    .out_stride = call.out.row_stride()});
  const auto norm_row = BH_OF_ISA(call.isa, NormRow);
  for (int t = 0; t < piece.count; ++t) {
    float* const row = out + t * call.out.row_stride();
    norm_row(row, call.weights.norm.F32(), call.weights.epsilon, heads.value_dim, row);
  }
  if (piece.first + piece.count < kStateBlock) return;
  BH_OF_ISA(call.isa, WeighKeys)(call.state.Keys(piece.slot, key_head), d, decays, scratch.weighed);
  const float decay = BH_OF_ISA(call.isa, DecayOf)(decays[kStateBlock - 1]);
  multiply({scratch.weighed, d, kStateBlock, corrected, padded, padded,
            piece.has_state ? &decay : nullptr, matrix, padded});
}

// All tokens of a sequence, in the value heads that read one key head.
void RunKeyHead(const DeltaCall& call, int seq, int64_t key_head,
                const CpuDeltaScratch::OfThread& scratch) {
  const DeltaHeads& heads = call.heads();
  const int32_t* const map = heads.value_to_key;
  const auto [first_head, last_head] =
      std::equal_range(map, map + heads.num_value_heads, static_cast<int32_t>(key_head));
  const StepIndex& index = call.index;
  for (int64_t row = index.seq_begin[seq]; row < index.seq_begin[seq + 1];) {
    const int position = index.position[row];
    DeltaPiece piece{.slot = index.seq_slot[seq],
                     .row = row,
                     .first = position % kStateBlock,
                     .count = 0,
                     .has_state = position >= kStateBlock};
    piece.count = static_cast<int>(
        std::min<int64_t>(kStateBlock - piece.first, index.seq_begin[seq + 1] - row));
    row += piece.count;
    NormHeads(call, piece, key_head, scratch);
    const int64_t columns = RoundUp(piece.first + piece.count, 16);
    BH_OF_ISA(call.isa, MultiplyDelta)
    ({scratch.normed, 2 * piece.count, heads.key_dim, call.state.Keys(piece.slot, key_head),
      kStateBlock, columns, nullptr, scratch.dots, kStateBlock});
    for (const int32_t* head = first_head; head < last_head; ++head) {
      RunValueHead(call, piece, key_head, head - map, scratch);
    }
  }
}

}  // namespace

void CpuBackend::GatedDelta(const StepIndex& index, const GatedDeltaWeights& weights,
                            ConstMatrixView qkv, ConstMatrixView ba, const StateLayerView& state,
                            MatrixView out) {
  const DeltaCall call{isa_, index, weights, qkv, ba, state, out};
  const DeltaHeads& heads = call.heads();
  if (index.num_tokens == 0 || heads.num_value_heads == 0) return;
  BH_CHECK(qkv.cols() == heads.qkv_dim() && out.cols() == heads.out_dim());
  BH_CHECK(ba.cols() == 2 * heads.num_value_heads && heads.key_dim == delta_scratch_.key_dim);
  // A key head's sequences are consecutive, so that a long one is spread over the threads.
  const int64_t work = int64_t{4} * index.num_tokens * heads.out_dim() * heads.key_dim;
  pool_->ParallelForWork(int64_t{heads.num_key_heads} * index.num_seqs, work,
                         [&](int thread, int64_t begin, int64_t end) {
                           const CpuDeltaScratch::OfThread scratch = delta_scratch_.Of(thread);
                           for (int64_t item = begin; item < end; ++item) {
                             RunKeyHead(call, static_cast<int>(item % index.num_seqs),
                                        item / index.num_seqs, scratch);
                           }
                         });
}

}  // namespace bulkhead
