// The two inner products of attention over a tile of rows: scores (lanes along tokens) and values
// (lanes along the head). A tile's sums stay in registers; a broadcast of one number per row and
// step feeds all its vectors. Each number is one chain of fused multiply-adds, whatever the tile's
// shape.
#pragma once

#include "kernels/attend/attention_caches.h"
#include "kernels/attend/op.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

// Adjacent vectors of 16 in a tile of `rows` rows: as many as the registers for sums allow.
constexpr int TileVectors(int rows) {
  constexpr int kSums = kTileRows * kTileVectors;
  return rows * 4 <= kSums ? 4 : rows * 2 <= kSums ? 2 : 1;
}

// A tile's scores: row r, vector v, lane, relative to the chunk's begin: weights[r][16 v + lane] =
//   scale * sum over i of q[i][r] * key(16 v + lane)[i]
template <typename Cache>
struct ScoreJob {
  const typename Cache::Element* const* keys;  // one per 16 tokens, then pointers to prefetch
  int64_t stride;                              // between the elements of a key
  TokenScalings scalings;
  const float* q;  // [head_dim][rows]
  int head_dim;
  float scale;
  float* weights;  // rows kAttentionWeightStride apart
};

// A tile's values: out[r][c] += sum over tokens s in [begin, end), relative to the chunk's begin,
// of weights[r][s] * value(s)[c], continuing the chains in `out`.
template <typename Cache>
struct ValueJob {
  const typename Cache::Element* const* values;  // one per 16 tokens, then pointers to prefetch
  int64_t stride;                                // between tokens
  TokenScalings scalings;
  int begin;
  int end;
  const float* weights;  // rows kAttentionWeightStride apart, from the chunk's begin
  float* out;            // [rows][width]
  int width;
};

template <typename Cache, int kRows, int kVectors>
BH_INLINE void ScoreTile(const ScoreJob<Cache>& job, int first_vector) {
  constexpr int kNumbers = Cache::kNumbers;
  const typename Cache::Element* key[kVectors];
  const typename Cache::Element* ahead[kVectors];
  Scaling scaling[kVectors];
  F32x16 sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    key[v] = job.keys[first_vector + v];
    if constexpr (Cache::kInMemory) ahead[v] = job.keys[first_vector + v + kAttentionAhead];
    scaling[v] = ScalingOfTokens<Cache>(job.scalings, (first_vector + v) * kLanes);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Zero();
  }
  const float* q = job.q;
  const int64_t stride = job.stride;
  for (int i = job.head_dim; i > 0; i -= kNumbers, q += kNumbers * kRows) {
    F32x16 k[kVectors][kNumbers];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      Cache::LoadKeys(key[v], scaling[v], k[v]);
      key[v] += stride;
      if constexpr (Cache::kInMemory) {
        PrefetchLater(ahead[v]);
        ahead[v] += stride;
      }
    }
#pragma GCC unroll 16
    for (int j = 0; j < kNumbers; ++j) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const F32x16 x = Set1(q[j * kRows + r]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sum[r][v] = Fma(x, k[v][j], sum[r][v]);
      }
    }
  }
  float* weights = job.weights + first_vector * kLanes;
  const F32x16 scale = Set1(job.scale);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      Store(weights + r * kAttentionWeightStride + v * kLanes, Mul(sum[r][v], scale));
    }
  }
}

template <typename Cache, int kRows, int kVectors>
BH_INLINE void ValueTile(const ValueJob<Cache>& job, int column) {
  using Element = typename Cache::Element;
  constexpr int kElements = kVectors * kLanes / Cache::kNumbers;  // of one token
  F32x16 sum[kRows][kVectors];
  float* out = job.out + column;
  const int width = job.width;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Load(out + r * width + v * kLanes);
  }
  const float* weights = job.weights;
  const int64_t stride = job.stride;
  for (int s = job.begin; s < job.end;) {
    const Element* value = job.values[s / kLanes] + s % kLanes * stride;
    const Element* ahead = nullptr;
    if constexpr (Cache::kInMemory) {
      ahead =
          job.values[s / kLanes + kAttentionAhead] + s % kLanes * stride + column / Cache::kNumbers;
    }
    const int next = (s / kLanes + 1) * kLanes;
    const int stop = next < job.end ? next : job.end;
    for (; s < stop; ++s, value += stride) {
      F32x16 x[kVectors];
      const Scaling scaling = ScalingOfToken<Cache>(job.scalings, s);
      Cache::template LoadColumns<kVectors>(value, column, scaling, x);
      if constexpr (Cache::kInMemory) {
#pragma GCC unroll 16
        for (int i = 0; i < kElements; i += 64 / sizeof(Element)) PrefetchLater(ahead + i);
        ahead += stride;
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const F32x16 weight = Set1(weights[r * kAttentionWeightStride + s]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sum[r][v] = Fma(weight, x[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) Store(out + r * width + v * kLanes, sum[r][v]);
  }
}

template <typename Cache, int kRows>
void ScoreRows(const ScoreJob<Cache>& job, int first_vector, int end_vector) {
  constexpr int kWide = TileVectors(kRows);
  int v = first_vector;
  for (; v + kWide <= end_vector; v += kWide) ScoreTile<Cache, kRows, kWide>(job, v);
  for (; v < end_vector; ++v) ScoreTile<Cache, kRows, 1>(job, v);
}

template <typename Cache, int kRows>
void ValueRows(const ValueJob<Cache>& job) {
  constexpr int kWide = TileVectors(kRows);
  int c = 0;
  for (; c + kWide * kLanes <= job.width; c += kWide * kLanes) {
    ValueTile<Cache, kRows, kWide>(job, c);
  }
  for (; c < job.width; c += kLanes) ValueTile<Cache, kRows, 1>(job, c);
}

// The same for a number of rows known at run time, in [1, kRows].
template <typename Cache, int kRows>
BH_INLINE void ScoreAnyRows(const ScoreJob<Cache>& job, int rows, int first_vector,
                            int end_vector) {
  if (rows == kRows) {
    ScoreRows<Cache, kRows>(job, first_vector, end_vector);
  } else if constexpr (kRows > 1) {
    ScoreAnyRows<Cache, kRows - 1>(job, rows, first_vector, end_vector);
  }
}

template <typename Cache, int kRows>
BH_INLINE void ValueAnyRows(const ValueJob<Cache>& job, int rows) {
  if (rows == kRows) {
    ValueRows<Cache, kRows>(job);
  } else if constexpr (kRows > 1) {
    ValueAnyRows<Cache, kRows - 1>(job, rows);
  }
}

}  // namespace bulkhead::BH_ISA
