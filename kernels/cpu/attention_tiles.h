// The two inner products of attention over a tile of rows: scores (lanes along tokens) and values
// (lanes along the head). A tile's sums stay in registers; a broadcast of one number per row and
// step feeds all its vectors. Each number is one chain of fused multiply-adds, whatever the shape
// of the tile.
#pragma once

#include "kernels/cpu/attention.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

struct F32Cache {
  using Element = float;
  BH_INLINE static F32x16 LoadVector(const float* p) { return Load(p); }
  BH_INLINE static F32x16 LoadFirst(const float* p, int n) { return LoadN(p, n); }
};
struct Bf16Cache {
  using Element = uint16_t;
  BH_INLINE static F32x16 LoadVector(const uint16_t* p) { return LoadBf16(p); }
  BH_INLINE static F32x16 LoadFirst(const uint16_t* p, int n) { return LoadBf16N(p, n); }
};
struct F16Cache {
  using Element = uint16_t;
  BH_INLINE static F32x16 LoadVector(const uint16_t* p) { return LoadF16(p); }
  BH_INLINE static F32x16 LoadFirst(const uint16_t* p, int n) { return LoadF16N(p, n); }
};

// Vectors of 16 beside each other in a tile of `rows` rows: what the registers for sums allow.
constexpr int TileVectors(int rows) {
  constexpr int kSums = kTileRows * kTileVectors;
  return rows * 4 <= kSums ? 4 : rows * 2 <= kSums ? 2 : 1;
}

// A tile's scores: row r, vector v, lane: weights[r][16 v + lane] =
//   scale * sum over i of q[i][r] * keys[v][i * stride + lane]
template <typename Cache>
struct ScoreJob {
  const typename Cache::Element* const* keys;  // one for each 16 tokens
  int64_t stride;                              // between the elements of a key
  const float* q;                              // [head_dim][rows]
  int head_dim;
  float scale;
  float* weights;  // rows kAttentionWeightStride apart
};

// A tile's values: out[r][c] += sum over tokens s in [begin, end), counted from the chunk's begin,
// of weights[r][s] * value(s)[c], continuing the chains that `out` holds.
template <typename Cache>
struct ValueJob {
  const typename Cache::Element* const* values;  // one for each 16 tokens of the chunk
  int64_t stride;                                // between tokens
  int begin;
  int end;
  const float* weights;  // rows kAttentionWeightStride apart, from the chunk's begin
  float* out;            // [rows][width]
  int width;
};

template <typename Cache, int kRows, int kVectors>
BH_INLINE void ScoreTile(const ScoreJob<Cache>& job, int first_vector) {
  const typename Cache::Element* key[kVectors];
  F32x16 sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) key[v] = job.keys[first_vector + v];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Zero();
  }
  const float* q = job.q;
  const int64_t stride = job.stride;
  for (int i = job.head_dim; i > 0; --i, q += kRows) {
    F32x16 k[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      k[v] = Cache::LoadVector(key[v]);
      key[v] += stride;
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32x16 x = Set1(q[r]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Fma(x, k[v], sum[r][v]);
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
    const typename Cache::Element* value = job.values[s / kLanes] + s % kLanes * stride + column;
    const int next = (s / kLanes + 1) * kLanes;
    const int stop = next < job.end ? next : job.end;
    for (; s < stop; ++s, value += stride) {
      F32x16 x[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) x[v] = Cache::LoadVector(value + v * kLanes);
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
void ScoreRows(const ScoreJob<Cache>& job, int vectors) {
  constexpr int kWide = TileVectors(kRows);
  int v = 0;
  for (; v + kWide <= vectors; v += kWide) ScoreTile<Cache, kRows, kWide>(job, v);
  for (; v < vectors; ++v) ScoreTile<Cache, kRows, 1>(job, v);
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
BH_INLINE void ScoreAnyRows(const ScoreJob<Cache>& job, int rows, int vectors) {
  if (rows == kRows) {
    ScoreRows<Cache, kRows>(job, vectors);
  } else if constexpr (kRows > 1) {
    ScoreAnyRows<Cache, kRows - 1>(job, rows, vectors);
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
