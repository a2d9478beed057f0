// Causal attention over the paged cache on the tensor cores. A block's columns are pairs of a token
// and a query head that share one KV head, so that keys and values are read once for all of them. A
// warp computes 8 kTiles columns, over all tokens of a tile of 64 at a time:
//   scores^T [16 tokens][columns] = keys^T q^T      out^T [dims][columns] += values^T p^T
// with a running maximum and sum per column, in base 2. A block's four warps have different
// columns, over all tokens. One-token sequences have another kernel (decode.cuh).
#pragma once

#include "intrinsics.h"
#include "kernels/attend/attention_cache.cuh"
#include "kernels/attend/attention_shape.cuh"
#include "kernels/attend/cuda_kernels.h"
#include "kernels/attend/options.cuh"

namespace bulkhead::cuda {

// f16 if keys and values are f16, else bf16.
template <KvFormat kFormat>
BH_DEVICE uint32_t PairOf(float low, float high) {
  return kFormat == KvFormat::kF16 ? F16Pair(low, high) : Bf16Pair(low, high);
}
// The block's queries, rounded: [kColumns][2 pairs], rows kRowBytes apart, 0 if there is none.
template <KvFormat kFormat, int kColumns, int kRowBytes, int kThreads>
BH_DEVICE void StoreRounded(const AttendParameters& p, const Columns& columns, int pairs,
                            unsigned char* queries) {
  const int d = p.cache.head_dim;
  for (int i = int(threadIdx.x); i < kColumns * pairs; i += kThreads) {
    const int column = i / pairs;
    const int dim = i % pairs * 2;
    uint32_t pair = 0;
    if (column < columns.size() && dim < d) {
      const float* const q = p.qkv.data + columns.Token(column) * p.qkv.stride +
                             static_cast<int64_t>(columns.Head(column)) * d + dim;
      pair = PairOf<kFormat>(q[0], q[1]);
    }
    StoreWord(queries + column * kRowBytes + dim * 2, pair);
  }
}

template <KvFormat kFormat>
BH_DEVICE void MultiplyTiles(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kFormat == KvFormat::kF16) {
    MmaF16(c, a, b);
  } else {
    MmaBf16(c, a, b);
  }
}

// One lane's data: columns 2j and 2j + 1 of each tile of 8, j = lane % 4; tokens lane / 4 and 8
// more; dims the same.
template <KvFormat kFormat, int kDimTiles, int kTiles>
class AttendLane {
  using Shape = AttendShape<kFormat, kDimTiles, kTiles>;

 public:
  BH_DEVICE AttendLane(const AttendParameters& p, const Columns& columns, int kv_head,
                       unsigned char* shared)
      : p_(p), columns_(columns), kv_head_(kv_head), shared_(shared) {
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        if constexpr (!Shape::kQueriesStay) last_[n][i] = LastSeenBy(ColumnOf(n, i));
        row_max_[n][i] = kMaskedScore;
      }
    }
  }

  // Loads queries into shared memory and from there into fragments.
  BH_DEVICE void LoadQueries() {
    const int d = p_.cache.head_dim;
    const int pairs = (d + 15) / 16 * 8;
    StoreRounded<kFormat, Shape::kColumns, Shape::kQueryRowBytes, kAttendThreads>(p_, columns_,
                                                                                  pairs, shared_);
    __syncthreads();
    if constexpr (Shape::kQuantized) SumQueries(pairs);
    if constexpr (!Shape::kQueriesStay) {
      BH_UNROLL
      for (int k = 0; k < kDimTiles; ++k) {
        if (16 * k < d) LoadQueriesOf(k, query_[k]);
      }
    }
  }

  // Loads the queries of 16 dims into fragments.
  BH_DEVICE void LoadQueriesOf(int k, uint32_t (&query)[kTiles][2]) const {
    if constexpr (Shape::kQueriesStay) {
      const int tile_of_lane = LaneIndex() / 8;
      BH_UNROLL
      for (int n = 0; n < kTiles; n += 2) {
        uint32_t r[4];
        LdMatrixX4(r, shared_ +
                          (FirstColumn() + 8 * (n + tile_of_lane / 2) + LaneIndex() % 8) *
                              Shape::kQueryRowBytes +
                          32 * k + tile_of_lane % 2 * 16);
        query[n][0] = r[0];
        query[n][1] = r[1];
        query[n + 1][0] = r[2];
        query[n + 1][1] = r[3];
      }
    } else {
      BH_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        const unsigned char* const row =
            shared_ + (FirstColumn() + 8 * n + LaneIndex() / 4) * Shape::kQueryRowBytes +
            (16 * k + LaneIndex() % 4 * 2) * 2;
        query[n][0] = *reinterpret_cast<const uint32_t*>(row);
        query[n][1] = *reinterpret_cast<const uint32_t*>(row + 16);
      }
    }
  }

  // Adds one tile of the cache, tokens token0 .. token0 + 63.
  BH_DEVICE void Add(const unsigned char* tile, int token0, const CacheRange& range) {
    if (FirstColumn() >= columns_.size()) return;
    const int last_column = FirstColumn() + Shape::kWarpColumns < columns_.size()
                                ? FirstColumn() + Shape::kWarpColumns
                                : columns_.size();
    const int min_position = p_.cache.position[columns_.Token(FirstColumn())];
    const int max_position = p_.cache.position[columns_.Token(last_column - 1)];
    if (token0 > max_position) return;
    const bool all_seen = token0 >= range.first && token0 + kAttendTokens - 1 <= min_position &&
                          token0 >= FirstSeen(p_, max_position);
    BH_NO_UNROLL
    for (int first = 0; first < kAttendTokens; first += 16 * Shape::kParts) {
      AddParts(tile, token0, first, range, all_seen);
    }
  }

  // After all tiles: put(column, dim, sum of p v, max score, sum of p). Reuses the tiles' shared
  // memory.
  template <typename Put>
  BH_DEVICE void Merge(const Put& put) {
    auto* const maxima = reinterpret_cast<float*>(shared_ + Shape::kTilesAt);
    auto* const sums = maxima + Shape::kColumns;
    auto* const zeros = sums + Shape::kColumns;
    auto* const outs = zeros + Shape::kColumns;
    __syncthreads();
    StoreSums(maxima, sums, zeros, outs);
    __syncthreads();
    const int d = p_.cache.head_dim;
    for (int i = int(threadIdx.x); i < columns_.size() * d; i += kAttendThreads) {
      const int column = i / d;
      const int dim = i % d;
      float out = outs[column * Shape::kDims + dim] + zeros[column];
      if constexpr (kFormat == KvFormat::kFP8) out *= ScaleIn(p_.cache.value_scales);
      put(column, dim, out, maxima[column], sums[column]);
    }
  }

 private:
  BH_DEVICE static int FirstColumn() { return WarpIndex() * Shape::kWarpColumns; }
  BH_DEVICE static int ColumnOf(int tile, int i) {
    return FirstColumn() + 8 * tile + LaneIndex() % 4 * 2 + i;
  }

  // The sum of each column's query, which is multiplied by a key's zero.
  BH_DEVICE void SumQueries(int pairs) {
    auto* const sums = reinterpret_cast<float*>(shared_ + Shape::kQuerySumsAt);
    if (int(threadIdx.x) < Shape::kColumns) {
      const auto* const row =
          reinterpret_cast<const uint32_t*>(shared_ + int(threadIdx.x) * Shape::kQueryRowBytes);
      float sum = 0.0F;
      for (int i = 0; i < pairs; ++i) {
        sum += F32OfBf16(static_cast<uint16_t>(row[i])) +
               F32OfBf16(static_cast<uint16_t>(row[i] >> 16));
      }
      sums[int(threadIdx.x)] = sum;
    }
    __syncthreads();
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) query_sum_[n][i] = sums[ColumnOf(n, i)];
    }
  }

  using Scored = float[Shape::kParts][kTiles][4];  // of this lane's tokens and columns

  // Adds kParts of 16 tokens, from token `first` of the tile on.
  BH_DEVICE void AddParts(const unsigned char* tile, int token0, int first, const CacheRange& range,
                          bool all_seen) {
    float scores[Shape::kParts][kTiles][4] = {};
    Scores(tile, first, scores);
    Scale(tile, first, scores);
    if (!all_seen) Mask(token0 + first, range, scores);
    Softmax(tile, first, scores);
    AddValues(tile, first, scores);
  }

  BH_DEVICE void Scores(const unsigned char* tile, int first, Scored& scores) {
    const int tile_of_lane = LaneIndex() / 8;
    const unsigned char* const row = tile +
                                     (tile_of_lane / 2 * 8 + LaneIndex() % 8) * kKeyRowBytes +
                                     (first + tile_of_lane % 2 * 8) * 2;
    BH_UNROLL
    for (int k = 0; k < kDimTiles; ++k) {
      if (16 * k < p_.cache.head_dim) {
        uint32_t from_shared[kTiles][2];
        if constexpr (Shape::kQueriesStay) LoadQueriesOf(k, from_shared);
        const uint32_t(&query)[kTiles][2] = Shape::kQueriesStay ? from_shared : query_[k];
        BH_UNROLL
        for (int part = 0; part < Shape::kParts; ++part) {
          uint32_t a[4];
          LdMatrixX4Trans(a, row + 16 * k * kKeyRowBytes + 32 * part);
          BH_UNROLL
          for (int n = 0; n < kTiles; ++n) {
            MultiplyTiles<kFormat>(scores[part][n], a, query[n]);
          }
        }
      }
    }
  }

  // Converts to base 2; for codes applies the keys' scales and zeros.
  BH_DEVICE void Scale(const unsigned char* tile, int first, Scored& scores) {
    const auto* const scaling = reinterpret_cast<const float*>(tile + Shape::Tile::kScalingAt);
    float scale = p_.scale * kLog2OfE;
    if constexpr (kFormat == KvFormat::kFP8) scale *= ScaleIn(p_.cache.key_scales);
    ForEach([&](int part, int n, int i) {
      float& score = scores[part][n][i];
      if constexpr (Shape::kQuantized) {
        const int at = TokenOf(first, part, i);
        score = fmaf(scaling[at], score, scaling[kAttendTokens + at] * query_sum_[n][i % 2]);
      }
      score *= scale;
      if (p_.soft_cap != 0.0F) score = Capped(p_, score);
    });
  }

  BH_DEVICE void Mask(int token0, const CacheRange& range, Scored& scores) {
    if constexpr (Shape::kQueriesStay) {
      BH_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        BH_UNROLL
        for (int i = 0; i < 2; ++i) last_[n][i] = LastSeenBy(ColumnOf(n, i));
      }
    }
    ForEach([&](int part, int n, int i) {
      const int token = TokenOf(token0, part, i);
      const int last = last_[n][i % 2];
      const bool seen = token >= range.first && token < range.end && token <= last &&
                        token >= FirstSeen(p_, last);
      if (!seen) scores[part][n][i] = kMaskedScore;
    });
  }

  // Turns scores into weights p, times the values' scales if there are any.
  BH_DEVICE void Softmax(const unsigned char* tile, int first, Scored& scores) {
    const auto* const scaling = reinterpret_cast<const float*>(tile + Shape::Tile::kScalingAt);
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        float max = fmaxf(scores[0][n][i], scores[0][n][2 + i]);
        BH_UNROLL
        for (int part = 1; part < Shape::kParts; ++part) {
          max = fmaxf(max, fmaxf(scores[part][n][i], scores[part][n][2 + i]));
        }
        Raise(n, i, max);
      }
    }
    ForEach([&](int part, int n, int i) {
      // If a column has seen nothing yet its weights must be 0, not 2^0.
      const float max = row_max_[n][i % 2] > kMaskedScore ? row_max_[n][i % 2] : 0.0F;
      float weight = Exp2(scores[part][n][i] - max);
      sum_[n][i % 2] += weight;
      if constexpr (Shape::kQuantized) {
        const int at = 2 * kAttendTokens + TokenOf(first, part, i);
        zero_sum_[n][i % 2] = fmaf(weight, scaling[kAttendTokens + at], zero_sum_[n][i % 2]);
        weight *= scaling[at];
      }
      scores[part][n][i] = weight;
    });
  }

  BH_DEVICE void AddValues(const unsigned char* tile, int first, const Scored& scores) {
    const int tile_of_lane = LaneIndex() / 8;
    const unsigned char* const row =
        tile + Shape::Tile::kValuesAt +
        (first + tile_of_lane / 2 * 8 + LaneIndex() % 8) * Shape::Tile::kValueRowBytes +
        tile_of_lane % 2 * 16;
    BH_UNROLL
    for (int part = 0; part < Shape::kParts; ++part) {
      uint32_t weights[kTiles][2];
      BH_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        const float(&p)[4] = scores[part][n];
        weights[n][0] = MovMatrixTrans(PairOf<kFormat>(p[0], p[1]));
        weights[n][1] = MovMatrixTrans(PairOf<kFormat>(p[2], p[3]));
      }
      BH_UNROLL
      for (int k = 0; k < kDimTiles; ++k) {
        if (16 * k < p_.cache.head_dim) {
          uint32_t a[4];
          LdMatrixX4Trans(a, row + 16 * part * Shape::Tile::kValueRowBytes + 32 * k);
          BH_UNROLL
          for (int n = 0; n < kTiles; ++n) MultiplyTiles<kFormat>(out_[k][n], a, weights[n]);
        }
      }
    }
  }

  // The KV head's scale in the keys' or values' scales.
  BH_DEVICE float ScaleIn(const float* scales) const {
    return scales != nullptr ? scales[kv_head_] : 1.0F;
  }

  BH_DEVICE int LastSeenBy(int column) const {
    return column < columns_.size() ? p_.cache.position[columns_.Token(column)] : -1;
  }

  // body(part, tile of columns, this lane's number) for every score.
  template <typename Body>
  BH_DEVICE static void ForEach(const Body& body) {
    BH_UNROLL
    for (int part = 0; part < Shape::kParts; ++part) {
      BH_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        BH_UNROLL
        for (int i = 0; i < 4; ++i) body(part, n, i);
      }
    }
  }
  BH_DEVICE static int TokenOf(int first, int part, int i) {
    return first + 16 * part + LaneIndex() / 4 + i / 2 * 8;
  }

  // Raises a column's max score to the largest `score` in the warp.
  BH_DEVICE void Raise(int n, int i, float score) {
    BH_UNROLL
    for (int mask = 4; mask < kWarp; mask *= 2)
      score = fmaxf(score, __shfl_xor_sync(kFullMask, score, mask));
    const float max = fmaxf(score, row_max_[n][i]);
    const float shrink = Exp2(row_max_[n][i] - max);
    row_max_[n][i] = max;
    sum_[n][i] *= shrink;
    if constexpr (Shape::kQuantized) zero_sum_[n][i] *= shrink;
    BH_UNROLL
    for (int k = 0; k < kDimTiles; ++k) {
      out_[k][n][i] *= shrink;
      out_[k][n][2 + i] *= shrink;
    }
  }

  BH_DEVICE void StoreSums(float* maxima, float* sums, float* zeros, float* outs) {
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        BH_UNROLL
        for (int mask = 4; mask < kWarp; mask *= 2) {
          sum_[n][i] += __shfl_xor_sync(kFullMask, sum_[n][i], mask);
          if constexpr (Shape::kQuantized)
            zero_sum_[n][i] += __shfl_xor_sync(kFullMask, zero_sum_[n][i], mask);
        }
        const int at = ColumnOf(n, i);
        if (LaneIndex() < 4) {
          maxima[at] = row_max_[n][i];
          sums[at] = sum_[n][i];
          zeros[at] = zero_sum_[n][i];
        }
        BH_UNROLL
        for (int k = 0; k < kDimTiles; ++k) {
          float* const to = outs + at * Shape::kDims + 16 * k + LaneIndex() / 4;
          to[0] = out_[k][n][i];
          to[8] = out_[k][n][2 + i];
        }
      }
    }
  }

  const AttendParameters& p_;
  const Columns columns_;
  const int kv_head_;
  unsigned char* const shared_;
  int last_[kTiles][2];  // with many columns: found for each tile that needs them
  uint32_t query_[kDimTiles][kTiles][2] = {};  // unless queries stay in shared memory
  float query_sum_[kTiles][2] = {};
  float row_max_[kTiles][2];
  float sum_[kTiles][2] = {};
  float zero_sum_[kTiles][2] = {};
  float out_[kDimTiles][kTiles][4] = {};
};

}  // namespace bulkhead::cuda
