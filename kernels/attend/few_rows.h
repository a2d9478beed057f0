// The sums of tile registers computed by vectors, if tiles would have few rows: the heads of one
// token, read directly from the cache. Order as in ActivationDType::kBf16Amx (kernels/backend.h):
// per 32 inputs a chain of the even ones, one of the odd ones, and their sum is added; denormals
// are 0, which callers ensure (WithDenormalsAsZero). Compiled with tiles.h.
#pragma once

#include <xmmintrin.h>

#include "kernels/attend/attention_chunk.h"
#include "kernels/attend/attention_tiles.h"
#include "kernels/attend/in_bf16.h"
#include "kernels/attend/op.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

inline constexpr int kMaxFewHeads = 8;

// body(), whose functions are not inlined, with denormal inputs and results taken as 0.
template <typename Body>
BH_INLINE void WithDenormalsAsZero(const Body& body) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  body();
  _mm_setcsr(before);
}

struct FewRows {
  const CacheChunk<Bf16Cache>* chunk;
  int head_dim;          // a multiple of 16, as is width
  int width;             // of a value
  const float* q;        // [head_dim][rows], exact in bf16
  float* scores;         // rows kAttentionWeightStride apart
  const float* weights;  // same stride, exact in bf16
  float* out;            // [rows][width]
};

// One chain after the other, so that registers hold as many vectors as in any other attention
// (TileVectors): the even chain's sums wait in memory.
template <int kRows, int kVectors>
struct PartSums {
  alignas(64) float even[kRows * kVectors * kLanes];
  alignas(64) float all[kRows * kVectors * kLanes];
};

template <int kRows, int kVectors>
BH_INLINE void ZeroSums(F32x16 (&sums)[kRows][kVectors]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Zero();
  }
}

// Ends the chain of even or odd inputs of 32.
template <int kRows, int kVectors>
BH_INLINE void EndChain(int odd, const F32x16 (&chain)[kRows][kVectors],
                        PartSums<kRows, kVectors>& sums) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int at = (r * kVectors + v) * kLanes;
      if (odd == 0) {
        Store(sums.even + at, chain[r][v]);
      } else {
        Store(sums.all + at, Add(Load(sums.all + at), Add(Load(sums.even + at), chain[r][v])));
      }
    }
  }
}

template <int kRows, int kVectors>
BH_INLINE void ScoreFewVectors(const FewRows& job, int first_vector) {
  PartSums<kRows, kVectors> sums = {};
  const int64_t stride = job.chunk->KeyStride();
  for (int begin = 0; begin < job.head_dim; begin += kAttentionTileInputs) {
    const int end = Min(begin + kAttentionTileInputs, job.head_dim);
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      F32x16 chain[kRows][kVectors];
      ZeroSums(chain);
      const int64_t first = (begin + odd) * stride;
      const uint16_t* key[kVectors];
      const uint16_t* ahead[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        key[v] = job.chunk->keys()[first_vector + v] + first;
        ahead[v] = job.chunk->keys()[first_vector + v + kAttentionAhead] + first;
      }
      const float* q = job.q + (begin + odd) * kRows;
      for (int i = begin; i < end; i += 2, q += 2 * kRows) {
        F32x16 k[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          k[v] = LoadBf16(key[v]);
          key[v] += 2 * stride;
          Prefetch(ahead[v]);
          ahead[v] += 2 * stride;
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const F32x16 x = Set1(q[r]);
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) chain[r][v] = Fma(x, k[v], chain[r][v]);
        }
      }
      EndChain(odd, chain, sums);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    float* const scores = job.scores + r * kAttentionWeightStride + first_vector * kLanes;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors * kLanes; v += kLanes) {
      Store(scores + v, Load(sums.all + r * kVectors * kLanes + v));
    }
  }
}

// Over all tokens in `vectors`.
template <int kRows>
[[gnu::noipa]] void ScoreFewRows(const FewRows& job, Range vectors) {
  constexpr int kVectors = TileVectors(kRows);
  int v = vectors.begin;
  for (; v + kVectors <= vectors.end; v += kVectors) ScoreFewVectors<kRows, kVectors>(job, v);
  for (; v < vectors.end; ++v) ScoreFewVectors<kRows, 1>(job, v);
}

template <int kRows, int kVectors>
BH_INLINE void SumFewColumns(const FewRows& job, Range tokens, int column) {
  PartSums<kRows, kVectors> sums = {};
  const int64_t stride = job.chunk->ValueStride();
  const int first = tokens.begin / kAttentionTileInputs * kAttentionTileInputs;
  for (int begin = first; begin < tokens.end; begin += kAttentionTileInputs) {
    const Range group = Common(tokens, {begin, begin + kAttentionTileInputs});
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      F32x16 chain[kRows][kVectors];
      ZeroSums(chain);
      for (int s = group.begin + (group.begin + odd) % 2; s < group.end;) {
        const int vector = s / kLanes;
        const int end = Min(group.end, (vector + 1) * kLanes);
        const int64_t at = s % kLanes * stride + column;
        const uint16_t* value = job.chunk->values()[vector] + at;
        const uint16_t* ahead = job.chunk->values()[vector + kAttentionAhead] + at;
        for (; s < end; s += 2, value += 2 * stride, ahead += 2 * stride) {
          F32x16 x[kVectors];
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) x[v] = LoadBf16(value + v * kLanes);
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; v += 2) Prefetch(ahead + v * kLanes);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const F32x16 weight = Set1(job.weights[r * kAttentionWeightStride + s]);
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) chain[r][v] = Fma(weight, x[v], chain[r][v]);
          }
        }
      }
      EndChain(odd, chain, sums);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors * kLanes; v += kLanes) {
      Store(job.out + r * job.width + column + v, Load(sums.all + r * kVectors * kLanes + v));
    }
  }
}

template <int kRows>
[[gnu::noipa]] void SumFewRows(const FewRows& job, Range tokens) {
  constexpr int kVectors = TileVectors(kRows);
  int c = 0;
  for (; c + kVectors * kLanes <= job.width; c += kVectors * kLanes) {
    SumFewColumns<kRows, kVectors>(job, tokens, c);
  }
  for (; c < job.width; c += kLanes) SumFewColumns<kRows, 1>(job, tokens, c);
}

// The same for a number of rows known at run time, in [1, kRows].
template <int kRows = kMaxFewHeads>
void ScoreFewRows(const FewRows& job, int rows, Range vectors) {
  if (rows == kRows) {
    ScoreFewRows<kRows>(job, vectors);
  } else if constexpr (kRows > 1) {
    ScoreFewRows<kRows - 1>(job, rows, vectors);
  }
}
template <int kRows = kMaxFewHeads>
void SumFewRows(const FewRows& job, int rows, Range tokens) {
  if (rows == kRows) {
    SumFewRows<kRows>(job, tokens);
  } else if constexpr (kRows > 1) {
    SumFewRows<kRows - 1>(job, rows, tokens);
  }
}

}  // namespace bulkhead::BH_ISA
