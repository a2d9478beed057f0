#include "simd.h"
#include "kernels/gated_delta/op.h"
#include "kernels/simd/exp.h"

namespace bulkhead::BH_ISA {
namespace {

constexpr int kBlock = 64;

template <int kRows, int kVectors>
BH_INLINE void Tile(const DeltaProduct& p, int64_t row, int64_t col) {
  F32x16 sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const float* const before = p.out + (row + r) * p.out_stride + col + v * kLanes;
      sums[r][v] = p.factor == nullptr ? Zero() : Mul(Set1(*p.factor), Load(before));
    }
  }
  const float* const x = p.x + row * p.depth;
  const float* m = p.m + col;
  for (int64_t i = 0; i < p.depth; ++i, m += p.m_stride) {
    F32x16 columns[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) columns[v] = Load(m + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32x16 factor = Set1(x[r * p.depth + i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Fma(factor, columns[v], sums[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Store(p.out + (row + r) * p.out_stride + col + v * kLanes, sums[r][v]);
    }
  }
}

template <int kRows, int kVectors>
BH_INLINE void TilesOfRows(const DeltaProduct& p, int64_t row) {
  int64_t col = 0;
  for (; col + kVectors * kLanes <= p.cols; col += kVectors * kLanes) {
    Tile<kRows, kVectors>(p, row, col);
  }
  for (; col < p.cols; col += kLanes) Tile<kRows, 1>(p, row, col);
}

// e^(G of t - G of s) for s in [0, count), rounded up to whole vectors.
BH_INLINE void DecaysSince(const double* decays, double at_t, int count, float* out) {
  for (int s = 0; s < count; ++s) out[s] = static_cast<float>(at_t - decays[s]);
  for (int s = count; s % kLanes != 0; ++s) out[s] = 0;
  for (int s = 0; s < count; s += kLanes) Store(out + s, Exp(Load(out + s)));
}

// Columns [col, col + kVectors x 16) of a token; `lanes`: valid lanes of the last vector.
template <int kVectors>
BH_INLINE void SolveColumns(const DeltaTokens& a, int t, const float* k_weight,
                            const float* q_weight, float decay, int64_t col, int lanes) {
  const int64_t padded = (a.value_dim + kLanes - 1) / kLanes * kLanes;
  const int in_block = a.first + t;
  F32x16 of_k[kVectors];
  F32x16 of_q[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = t * padded + col + v * kLanes;
    of_k[v] = a.k_state == nullptr ? Zero() : Mul(Set1(decay), Load(a.k_state + at));
    of_q[v] = a.q_state == nullptr ? Zero() : Mul(Set1(decay), Load(a.q_state + at));
  }
  const float* u = a.corrected + col;
  for (int s = 0; s < in_block; ++s, u += padded) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const F32x16 of_s = Load(u + v * kLanes);
      of_k[v] = Fma(Set1(k_weight[s]), of_s, of_k[v]);
      of_q[v] = Fma(Set1(q_weight[s]), of_s, of_q[v]);
    }
  }
  float* const own = a.corrected + in_block * padded + col;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int n = v + 1 < kVectors ? kLanes : lanes;
    const F32x16 value = LoadN(a.v + t * a.v_stride + col + v * kLanes, n);
    const F32x16 corrected = Mul(Set1(a.beta[t]), Sub(value, of_k[v]));
    Store(own + v * kLanes, corrected);
    StoreN(a.out + t * a.out_stride + col + v * kLanes,
           Fma(Set1(q_weight[in_block]), corrected, of_q[v]), n);
  }
}

}  // namespace

void MultiplyDelta(const DeltaProduct& p) {
  int64_t row = 0;
  for (; row + kTileRows <= p.rows; row += kTileRows) TilesOfRows<kTileRows, kTileVectors>(p, row);
  for (; row + 2 <= p.rows; row += 2) TilesOfRows<2, 4>(p, row);
  for (; row < p.rows; ++row) TilesOfRows<1, 4>(p, row);
}

void SolveDelta(const DeltaTokens& a) {
  for (int t = 0; t < a.count; ++t) {
    const int seen = a.first + t + 1;
    float decays[kBlock], k_weight[kBlock], q_weight[kBlock];
    DecaysSince(a.decays, a.decays[seen - 1], seen, decays);
    for (int s = 0; s < seen; s += kLanes) {
      Store(k_weight + s, Mul(Load(decays + s), Load(a.k_dot + t * kBlock + s)));
      Store(q_weight + s, Mul(Load(decays + s), Load(a.q_dot + t * kBlock + s)));
    }
    const float decay = DecayOf(a.decays[seen - 1]);
    constexpr int kVectors = 4;
    int64_t col = 0;
    for (; col + kVectors * kLanes <= a.value_dim; col += kVectors * kLanes) {
      SolveColumns<kVectors>(a, t, k_weight, q_weight, decay, col, kLanes);
    }
    for (; col < a.value_dim; col += kLanes) {
      const int64_t left = a.value_dim - col;
      SolveColumns<1>(a, t, k_weight, q_weight, decay, col,
                      left < kLanes ? static_cast<int>(left) : kLanes);
    }
  }
}

void WeighKeys(const float* keys, int64_t key_dim, const double* decays, float* out) {
  float weights[kBlock];
  DecaysSince(decays, decays[kBlock - 1], kBlock, weights);
  for (int64_t i = 0; i < key_dim * kBlock; i += kLanes) {
    Store(out + i, Mul(Load(keys + i), Load(weights + i % kBlock)));
  }
}

float DecayOf(double sum) {
  float lanes[kLanes];
  Store(lanes, Exp(Set1(static_cast<float>(sum))));
  return lanes[0];
}

}  // namespace bulkhead::BH_ISA
