// A block has kDeltaColumns columns of one value head of one sequence. Their part of the state's
// matrix and of the open block's corrected values stays in shared memory for the step, with the
// block's normed keys; tokens are taken kPiece at a time, and never across a border of kStateBlock.
// Formulas: kernels/gated_delta/op.h. Orders of sums: dot products and products with the matrix are
// four chains, of columns 4i, 4i + 1 and so on, joined (0+1)+(2+3); sums over the block's tokens
// are a chain over ascending positions. None depends on where a piece or a step begins.
//
// Keys and sums of decay are read by many blocks, so a second kernel stores them; its other blocks
// norm the outputs.
#pragma once

#include "base/portable_math.h"
#include "intrinsics.h"
#include "kernels/cuda/out_rows.cuh"
#include "kernels/gated_delta/cuda.h"
#include "kernels/gated_delta/op.h"
#include "memory/recurrent_state.h"

namespace bulkhead::cuda {

struct GatedDeltaParameters {
  const int32_t* seq_begin = nullptr;
  const int32_t* seq_slot = nullptr;
  const int32_t* position = nullptr;
  int num_seqs = 0;
  ConstRows qkv;
  ConstRows ba;
  const float* a_log = nullptr;
  const float* dt_bias = nullptr;
  const float* norm = nullptr;
  float epsilon = 0;
  // State of slot 0; layout: memory/recurrent_state.h.
  double* decays = nullptr;
  float* matrices = nullptr;
  float* corrected = nullptr;
  float* keys = nullptr;
  int64_t slot_floats = 0;
  int num_slots = 0;
  int num_key_heads = 0;
  int num_value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int padded_value_dim = 0;
  Rows out;
  uint16_t key_head_of[kMaxDeltaValueHeads] = {};
};

inline constexpr int kDeltaWarps = 8;
inline constexpr int kDeltaColumns = 32;
inline constexpr int kDeltaPiece = 16;
inline constexpr int kKeyPad = 4;                      // floats between rows of keys
inline constexpr int kWeightStride = kStateBlock + 1;  // of a row of weights
inline constexpr int kProductStride = kDeltaColumns + 4;
inline constexpr int kFinishWarps = 4;

// Shared memory of a block; sizes in floats, except for the doubles in front.
struct DeltaShared {
  int key_stride;
  int piece;

  int doubles() const { return kStateBlock + kDeltaPiece; }
  int floats(int key_dim) const {
    return (kStateBlock + piece) * key_stride + (key_dim + kStateBlock) * kDeltaColumns +
           2 * piece * (kProductStride + kWeightStride) + piece;
  }
};

// Norms a head of up to kMaxDeltaKeyDim numbers, by one warp.
BH_DEVICE void NormHead(const float* x, int size, float factor, float* out) {
  const int column = LaneIndex() * 4;
  Floats4 v = {};
  if (column < size) v = LoadFour(x + column);
  float squares = 0.0F;
  BH_UNROLL
  for (int i = 0; i < 4; ++i) squares = fmaf(v.v[i], v.v[i], squares);
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    squares += __shfl_xor_sync(kFullMask, squares, mask);
  }
  const float scale = factor / sqrtf(squares + kDeltaNormEpsilon);
  BH_UNROLL
  for (int i = 0; i < 4; ++i) v.v[i] *= scale;
  if (column < size) StoreFour(out + column, v);
}

// The logarithm of decay of a token.
BH_DEVICE double DecayTerm(const GatedDeltaParameters& p, int row, int head) {
  float a_log = p.a_log[head];
  if (a_log < -80.0F) a_log = -80.0F;
  if (a_log > 80.0F) a_log = 80.0F;  // a NaN is kept
  const auto rate = static_cast<float>(ExpOf(static_cast<double>(a_log)));
  const float a = p.ba.data[row * p.ba.stride + p.num_value_heads + head] + p.dt_bias[head];
  return -static_cast<double>(rate) * Softplus(static_cast<double>(a));
}

BH_DEVICE float DecayBetween(double from, double to) { return expf(static_cast<float>(to - from)); }

BH_DEVICE float JoinChains(const Floats4& x) { return (x.v[0] + x.v[1]) + (x.v[2] + x.v[3]); }

// The data of one block. Rows of `weights` and `products` are the kPiece keys, then the kPiece
// queries of a piece.
template <int kPiece>
struct DeltaBlock {
  const GatedDeltaParameters& p;
  int head;
  int first_column;
  double* decays;    // [kStateBlock]
  double* terms;     // [kDeltaPiece]
  float* keys;       // [kStateBlock, key_stride]
  float* queries;    // [kPiece, key_stride]
  float* matrix;     // [key_dim, kDeltaColumns]
  float* corrected;  // [kStateBlock, kDeltaColumns]
  float* weights;    // [2 kPiece, kWeightStride]
  float* products;   // [2 kPiece, kProductStride]
  float* beta;       // [kPiece]
  int key_stride;
  bool has_state = false;
  int first = 0;  // of the piece, in its kStateBlock
  int count = 0;  // tokens of the piece
  int row = 0;    // of the piece's first token, in the step

  BH_DEVICE DeltaBlock(const GatedDeltaParameters& parameters, int head_index, int column)
      : p(parameters),
        head(head_index),
        first_column(column),
        key_stride(parameters.key_dim + kKeyPad) {
    decays = reinterpret_cast<double*>(SharedMemory());
    terms = decays + kStateBlock;
    keys = reinterpret_cast<float*>(terms + kDeltaPiece);
    queries = keys + kStateBlock * key_stride;
    matrix = queries + kPiece * key_stride;
    corrected = matrix + p.key_dim * kDeltaColumns;
    products = corrected + kStateBlock * kDeltaColumns;
    weights = products + 2 * kPiece * kProductStride;
    beta = weights + 2 * kPiece * kWeightStride;
  }

  // The first of this thread's four columns, of 32.
  BH_DEVICE int Column() const { return int(threadIdx.x) % 8 * 4; }
  BH_DEVICE float* Row(int r) const {  // of keys, then queries
    return r < kPiece ? keys + (first + r) * key_stride : queries + (r - kPiece) * key_stride;
  }

  BH_DEVICE void LoadState(int slot) {
    const int64_t at = slot * p.slot_floats;
    const int column = Column();
    const bool present = first_column + column < p.padded_value_dim;
    const int column_at = present ? first_column + column : 0;
    const float* const from =
        p.matrices + at + static_cast<int64_t>(head) * p.key_dim * p.padded_value_dim + column_at;
    for (int i = int(threadIdx.x) / 8; has_state && i < p.key_dim; i += kDeltaWarps * 4) {
      CpAsync16(matrix + i * kDeltaColumns + column, from + i * p.padded_value_dim, present);
    }
    const float* const values = p.corrected + at +
                                static_cast<int64_t>(head) * kStateBlock * p.padded_value_dim +
                                column_at;
    for (int s = int(threadIdx.x) / 8; s < first; s += kDeltaWarps * 4) {
      CpAsync16(corrected + s * kDeltaColumns + column, values + s * p.padded_value_dim, present);
    }
    const float* const all_keys =
        p.keys + at + static_cast<int64_t>(p.key_head_of[head]) * kStateBlock * p.key_dim;
    const int vectors = p.key_dim / 4;
    for (int i = int(threadIdx.x); i < first * vectors; i += kDeltaWarps * kWarp) {
      const int s = i / vectors;
      CpAsync16(keys + s * key_stride + i % vectors * 4, all_keys + i * 4, true);
    }
    CpAsyncCommit();
    if (int(threadIdx.x) < first) {
      decays[int(threadIdx.x)] = p.decays[at / 2 + head * kStateBlock + int(threadIdx.x)];
    }
  }

  // Normed keys and queries, sums of decay and beta of the piece. Call after a barrier: the last
  // warp reads decays[first - 1].
  BH_DEVICE void Begin() {
    const float q_scale = 1.0F / sqrtf(static_cast<float>(p.key_dim));
    const float* const q = p.qkv.data + row * p.qkv.stride + p.key_head_of[head] * p.key_dim;
    for (int r = WarpIndex(); r < 2 * count; r += kDeltaWarps) {
      const int t = r / 2;
      const float* const x = q + t * p.qkv.stride;
      if (r % 2 == 0) {
        NormHead(x + p.num_key_heads * p.key_dim, p.key_dim, 1.0F, Row(t));
      } else {
        NormHead(x, p.key_dim, q_scale, Row(kPiece + t));
      }
    }
    if (WarpIndex() != kDeltaWarps - 1) return;
    if (LaneIndex() < count) {
      const int at = row + LaneIndex();
      terms[LaneIndex()] = DecayTerm(p, at, head);
      beta[LaneIndex()] =
          static_cast<float>(SigmoidOf(static_cast<double>(p.ba.data[at * p.ba.stride + head])));
    }
    __syncwarp();
    if (LaneIndex() != 0) return;
    double sum = first == 0 ? 0.0 : decays[first - 1];
    for (int t = 0; t < count; ++t) {
      sum = sum + terms[t];
      decays[first + t] = sum;
    }
  }

  // The weights of tokens t to t + kTokens - 1 for keys s: one s per lane.
  template <int kTokens>
  BH_DEVICE void Weigh(int token, int s) {
    const int last = first + (token + kTokens < count ? token + kTokens : count) - 1;
    const float* const key = keys + (s < last ? s : last) * key_stride;
    Floats4 of_k[kTokens] = {};
    Floats4 of_q[kTokens] = {};
    int at[kTokens];
    BH_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      at[t] = (token + t < count ? token + t : count - 1) * key_stride;
    }
    const float* const own = keys + first * key_stride;
    for (int i = 0; i < p.key_dim; i += 4) {
      const Floats4 x = LoadFour(key + i);
      BH_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const Floats4 k = LoadFour(own + at[t] + i);
        const Floats4 q = LoadFour(queries + at[t] + i);
        BH_UNROLL
        for (int j = 0; j < 4; ++j) {
          of_k[t].v[j] = fmaf(k.v[j], x.v[j], of_k[t].v[j]);
          of_q[t].v[j] = fmaf(q.v[j], x.v[j], of_q[t].v[j]);
        }
      }
    }
    BH_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      if (token + t >= count || s > first + token + t) continue;
      const float decay = DecayBetween(decays[s], decays[first + token + t]);
      weights[(token + t) * kWeightStride + s] = decay * JoinChains(of_k[t]);
      weights[(kPiece + token + t) * kWeightStride + s] = decay * JoinChains(of_q[t]);
    }
  }

  // Four rows of keys and queries times the matrix, by one warp.
  BH_DEVICE void MultiplyMatrix(int first_row) {
    constexpr int kRows = kPiece == 1 ? 2 : 4;
    const int column = Column();
    const int chain = LaneIndex() / 8;
    const float* x[kRows];
    BH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int t = (first_row + r) % kPiece;
      x[r] = Row(first_row + r - (t < count ? 0 : t - count + 1));
    }
    Floats4 sums[kRows] = {};
    for (int i = chain; i < p.key_dim; i += 4) {
      const Floats4 m = LoadFour(matrix + i * kDeltaColumns + column);
      BH_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const float factor = x[r][i];
        BH_UNROLL
        for (int j = 0; j < 4; ++j) sums[r].v[j] = fmaf(factor, m.v[j], sums[r].v[j]);
      }
    }
    BH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      BH_UNROLL
      for (int j = 0; j < 4; ++j) {
        sums[r].v[j] += __shfl_xor_sync(kFullMask, sums[r].v[j], 8);
        sums[r].v[j] += __shfl_xor_sync(kFullMask, sums[r].v[j], 16);
      }
      if (chain == r) StoreFour(products + (first_row + r) * kProductStride + column, sums[r]);
    }
  }

  // Weights and products of the piece.
  BH_DEVICE void Multiply() {
    constexpr int kTokens = kPiece == 1 ? 1 : 4;
    const int tokens = (count + kTokens - 1) / kTokens;
    for (int item = WarpIndex(); item < 2 * tokens; item += kDeltaWarps) {
      const int s = item / tokens * kWarp + LaneIndex();
      if (item / tokens * kWarp < first + count) Weigh<kTokens>(item % tokens * kTokens, s);
    }
    if (!has_state) return;
    constexpr int kRows = kPiece == 1 ? 2 : 4;
    const int at = (kDeltaWarps - 1 - WarpIndex()) * kRows;
    if (at < 2 * kPiece && at % kPiece < count) MultiplyMatrix(at);
  }

  // The values of this warp's four columns of token row + t.
  BH_DEVICE Floats4 Values(int t, int column) const {
    Floats4 v = {};
    if (column < p.value_dim) {
      v = LoadFour(p.qkv.data + (row + t) * p.qkv.stride + 2 * p.num_key_heads * p.key_dim +
                   head * p.value_dim + column);
    }
    return v;
  }

  // Corrected values and outputs: four columns per warp, a row of keys or queries per lane.
  BH_DEVICE void Solve() {
    const int own_column = WarpIndex() * 4;
    const int column = first_column + own_column;
    const bool is_q = LaneIndex() >= kPiece;
    const int t = is_q ? LaneIndex() - kPiece : LaneIndex();
    const bool present = LaneIndex() < 2 * kPiece && t < count;
    const float* const weight = weights + (present ? LaneIndex() : 0) * kWeightStride;
    Floats4 sum = {};
    Floats4 v = {};
    float own_beta = 0.0F;
    if (present && !is_q) {
      v = Values(t, column);
      own_beta = beta[t];
    }
    if (present && has_state) {
      const float decay = expf(static_cast<float>(decays[first + t]));
      sum = LoadFour(products + LaneIndex() * kProductStride + own_column);
      BH_UNROLL
      for (int j = 0; j < 4; ++j) sum.v[j] *= decay;
    }
    for (int s = 0; present && s < first; ++s) {
      const Floats4 u = LoadFour(corrected + s * kDeltaColumns + own_column);
      BH_UNROLL
      for (int j = 0; j < 4; ++j) sum.v[j] = fmaf(weight[s], u.v[j], sum.v[j]);
    }
    for (int from = 0; from < count; ++from) {
      Floats4 u;
      BH_UNROLL
      for (int j = 0; j < 4; ++j) {
        u.v[j] = __shfl_sync(kFullMask, own_beta * (v.v[j] - sum.v[j]), from);
      }
      if (LaneIndex() == from)
        StoreFour(corrected + (first + from) * kDeltaColumns + own_column, u);
      if (!present || (is_q ? from > t : from >= t)) continue;
      BH_UNROLL
      for (int j = 0; j < 4; ++j) sum.v[j] = fmaf(weight[first + from], u.v[j], sum.v[j]);
    }
    if (!present || !is_q || column >= p.value_dim) return;
    StoreFour(p.out.data + (row + t) * p.out.stride + head * p.value_dim + column, sum);
  }

  // The matrix after the block's last token; has two barriers.
  BH_DEVICE void Advance() {
    const double end = decays[kStateBlock - 1];
    const int column = Column();
    for (int s = int(threadIdx.x) / 8; s < kStateBlock; s += kDeltaWarps * 4) {
      float* const u = corrected + s * kDeltaColumns + column;
      Floats4 x = LoadFour(u);
      const float decay = DecayBetween(decays[s], end);
      BH_UNROLL
      for (int j = 0; j < 4; ++j) x.v[j] *= decay;
      StoreFour(u, x);
    }
    __syncthreads();
    const float decay = expf(static_cast<float>(end));
    for (int i = int(threadIdx.x) / 8 * 4; i < p.key_dim; i += kDeltaWarps * 16) {
      Floats4 sums[4] = {};
      BH_UNROLL
      for (int r = 0; r < 4; ++r) {
        if (!has_state) break;
        sums[r] = LoadFour(matrix + (i + r) * kDeltaColumns + column);
        BH_UNROLL
        for (int j = 0; j < 4; ++j) sums[r].v[j] *= decay;
      }
      for (int s = 0; s < kStateBlock; ++s) {
        const Floats4 k = LoadFour(keys + s * key_stride + i);
        const Floats4 u = LoadFour(corrected + s * kDeltaColumns + column);
        BH_UNROLL
        for (int r = 0; r < 4; ++r) {
          BH_UNROLL
          for (int j = 0; j < 4; ++j) sums[r].v[j] = fmaf(k.v[r], u.v[j], sums[r].v[j]);
        }
      }
      BH_UNROLL
      for (int r = 0; r < 4; ++r) StoreFour(matrix + (i + r) * kDeltaColumns + column, sums[r]);
    }
    __syncthreads();
    has_state = true;
    first = 0;
  }

  // Stores the matrix if it has advanced, and the open block's corrected values from `from` on.
  BH_DEVICE void StoreState(int slot, bool advanced, int from) {
    const int column = Column();
    if (first_column + column >= p.padded_value_dim) return;
    const int64_t at = slot * p.slot_floats + first_column + column;
    float* const to = p.matrices + at + static_cast<int64_t>(head) * p.key_dim * p.padded_value_dim;
    for (int i = int(threadIdx.x) / 8; advanced && i < p.key_dim; i += kDeltaWarps * 4) {
      StoreFour(to + i * p.padded_value_dim, LoadFour(matrix + i * kDeltaColumns + column));
    }
    float* const values =
        p.corrected + at + static_cast<int64_t>(head) * kStateBlock * p.padded_value_dim;
    for (int s = from + int(threadIdx.x) / 8; s < first; s += kDeltaWarps * 4) {
      StoreFour(values + s * p.padded_value_dim, LoadFour(corrected + s * kDeltaColumns + column));
    }
  }
};

}  // namespace bulkhead::cuda
