// Attention of one-token sequences. A block's columns are the query heads that share a KV head; its
// four warps share a split's tokens, 16 kParts of a tile each, and go through them without waiting
// for one another (decode_cache.cuh):
//   scores^T [16 tokens][columns] = keys^T q^T      out^T [dims][columns] += values^T p^T
// with a running maximum and sum per column, in base 2. Codes become numbers in registers: a word
// of a tile has codes of two adjacent tokens of two dims of keys, or of two dims of two values, so
// that row i of an operand is an even one and row i + 8 the odd one after it.
#pragma once

#include "intrinsics.h"
#include "kernels/attend/decode_cache.cuh"
#include "kernels/attend/options.cuh"
#include "kernels/cuda/out_rows.cuh"

namespace bulkhead::cuda {

// One lane's data: columns 2j and 2j + 1 of each tile of 8, j = lane % 4; tokens and dims are rows
// lane / 4 and 8 more of a tile.
template <KvFormat kFormat, typename Shape>
class DecodeLane {
 public:
  BH_DEVICE DecodeLane(const AttendParameters& p, int kv_head) : p_(p), scale_(p.scale * kLog2OfE) {
    if constexpr (kFormat == KvFormat::kFP8) {
      if (p.cache.key_scales != nullptr) scale_ *= p.cache.key_scales[kv_head];
    }
  }

  BH_DEVICE void LoadQueries(int token, const Columns& columns) {
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      LoadQuery(token, columns, n);
      if constexpr (Shape::kQuantized) SumQuery(n);
    }
  }

  // Begins another split with the same queries.
  BH_DEVICE void Begin() {
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        row_max_[n][i] = kMaskedScore;
        sum_[n][i] = zero_sum_[n][i] = 0.0F;
      }
      BH_UNROLL
      for (int k = 0; k < kDimTiles; ++k) {
        BH_UNROLL
        for (int i = 0; i < 4; ++i) out_[k][n][i] = 0.0F;
      }
    }
  }

  // Adds the warp's tokens of a tile, from `token` on.
  BH_DEVICE void Add(const unsigned char* tile, int token, const CacheRange& range) {
    if (token >= range.end) return;
    const bool all_seen = token >= range.first && token + kParts * kPartTokens <= range.end;
    float scores[kParts][kTiles][4] = {};
    BH_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const unsigned char* const at = tile + part * Shape::kPartBytes;
      const Seen seen = SeenOf(token + part * kPartTokens, range, all_seen);
      AddScores(at, scores[part]);
      Scale(ScalingOf(at, 0, seen), seen, scores[part]);
    }
    Raise(scores);
    BH_UNROLL
    for (int part = 0; part < kParts; ++part) {
      if (part > 0 && token + part * kPartTokens >= range.end) break;  // nothing was copied
      const unsigned char* const at = tile + part * Shape::kPartBytes;
      const Seen seen = SeenOf(token + part * kPartTokens, range, all_seen);
      uint32_t weights[kTiles][2];
      Weigh(ScalingOf(at, 1, seen), scores[part], weights);
      AddValues(at + Shape::kValuesAt, weights);
    }
  }

  // Stores sums where MergeSums reads them.
  BH_DEVICE void StoreSums(unsigned char* stage) {
    auto* const sums = reinterpret_cast<float*>(stage);
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
        const int column = 8 * n + LaneIndex() % 4 * 2 + i;
        if (LaneIndex() < 4) {
          StoreFour(sums + Shape::kColumns * Shape::kSumsRow + 4 * column,
                    {{row_max_[n][i], sum_[n][i], zero_sum_[n][i], 0.0F}});
        }
        BH_UNROLL
        for (int k = 0; k < kDimTiles; ++k) {
          BH_UNROLL
          for (int high = 0; high < 2; ++high) {
            const int dim = DimOf(k, high);
            if (dim >= 0) sums[column * Shape::kSumsRow + dim] = out_[k][n][2 * high + i];
          }
        }
      }
    }
  }

 private:
  static constexpr int kBits = Shape::kBits;
  static constexpr int kDimTiles = Shape::kDims / 16;
  static constexpr int kTiles = Shape::kColumns / 8;
  static constexpr int kParts = Shape::kTokens / (kAttendWarps * kPartTokens);
  using Scored = float[kTiles][4];
  using Pairs = uint32_t[kTiles][2];
  struct Seen {
    bool token[2] = {true, true};
    bool all = true;
  };
  struct Scaling {
    float scale[2] = {1.0F, 1.0F};
    float zero[2] = {};
  };

  BH_DEVICE static int Row() { return LaneIndex() / 4; }

  BH_DEVICE static uint32_t PairOf(float low, float high) {
    return kFormat == KvFormat::kF16 ? F16Pair(low, high) : Bf16Pair(low, high);
  }
  BH_DEVICE static void Multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (kFormat == KvFormat::kF16) {
      MmaF16(c, a, b);
    } else {
      MmaBf16(c, a, b);
    }
  }

  // In the order of the keys' dims: an int4 byte has two, the first in its low half.
  BH_DEVICE void LoadQuery(int token, const Columns& columns, int n) {
    const int d = p_.cache.head_dim;
    const int column = 8 * n + Row();
    const bool is_there = column < columns.heads;
    const float* const q = p_.qkv.data + token * p_.qkv.stride +
                           static_cast<int64_t>(columns.head0 + (is_there ? column : 0)) * d;
    constexpr int kStep = kBits == 4 ? 2 : 1;
    float numbers[kDimTiles][2][2];  // all loads are issued before any is used
    BH_UNROLL
    for (int k = 0; k < kDimTiles; ++k) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int dim =
            16 * k + (kBits == 4 ? 4 * (LaneIndex() % 4) + i : 2 * (LaneIndex() % 4) + 8 * i);
        const bool valid = is_there && dim < d;
        numbers[k][i][0] = valid ? q[dim] : 0.0F;
        numbers[k][i][1] = valid ? q[dim + kStep] : 0.0F;
      }
    }
    BH_UNROLL
    for (int k = 0; k < kDimTiles; ++k) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        query_[k][n][i] = PairOf(numbers[k][i][0], numbers[k][i][1]);
      }
    }
  }

  // The sum of each column's query, which is multiplied by a key's zero.
  BH_DEVICE void SumQuery(int n) {
    float sum = 0.0F;
    BH_UNROLL
    for (int k = 0; k < kDimTiles; ++k) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        sum += F32OfBf16(static_cast<uint16_t>(query_[k][n][i])) +
               F32OfBf16(static_cast<uint16_t>(query_[k][n][i] >> 16));
      }
    }
    sum += __shfl_xor_sync(kFullMask, sum, 1);
    sum += __shfl_xor_sync(kFullMask, sum, 2);
    BH_UNROLL
    for (int i = 0; i < 2; ++i) {
      query_sum_[n][i] = __shfl_sync(kFullMask, sum, (LaneIndex() % 4 * 2 + i) * 4);
    }
  }

  BH_DEVICE static int TokenOf(int high) {
    return kBits == 16 ? Row() + 8 * high : 2 * Row() + high;
  }
  BH_DEVICE static Seen SeenOf(int token, const CacheRange& range, bool all) {
    Seen seen;
    seen.all = all;
    if (all) return seen;
    BH_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int of = token + TokenOf(i);
      seen.token[i] = of >= range.first && of < range.end;
    }
    return seen;
  }

  // body(tile of columns, this lane's number) for every score of a part.
  template <typename Body>
  BH_DEVICE static void ForEach(const Body& body) {
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 4; ++i) body(n, i);
    }
  }

  // For keys (which 0) or values (1), for centred codes; 0 for tokens beyond the range.
  BH_DEVICE static Scaling ScalingOf(const unsigned char* part, int which, const Seen& seen) {
    Scaling scaling;
    if constexpr (Shape::kQuantized) {
      const auto* const at = reinterpret_cast<const uint16_t*>(part + Shape::kScalingAt) +
                             2 * kPartTokens * which + 2 * Row();
      uint32_t scales = 0;
      uint32_t zeros = 0;
      if (seen.all || (seen.token[0] && seen.token[1])) {
        scales = *reinterpret_cast<const uint32_t*>(at);
        zeros = *reinterpret_cast<const uint32_t*>(at + kPartTokens);
      } else if (seen.token[0] || seen.token[1]) {
        const int i = seen.token[0] ? 0 : 1;
        scales = uint32_t{at[i]} << (16 * i);
        zeros = uint32_t{at[kPartTokens + i]} << (16 * i);
      }
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        scaling.scale[i] = F32OfF16(static_cast<uint16_t>(scales >> (16 * i)));
        scaling.zero[i] = fmaf(static_cast<float>(1 << (kBits - 1)), scaling.scale[i],
                               F32OfF16(static_cast<uint16_t>(zeros >> (16 * i))));
      }
    }
    return scaling;
  }

  // Two chains, since a product waits for the previous one.
  BH_DEVICE void AddScores(const unsigned char* keys, Scored& scores) {
    Scored others = {};
    BH_UNROLL
    for (int k = 0; k < kDimTiles; k += kTilesOfLoad) {
      uint32_t r[4];
      LdMatrixX4Trans(r, keys + KeyRowAt<Shape>(k));
      BH_UNROLL
      for (int i = 0; i < kTilesOfLoad; ++i) {
        uint32_t a[4];
        if constexpr (kBits == 16) {
          BH_UNROLL
          for (int part = 0; part < 4; ++part) a[part] = r[part];
        } else {
          BH_UNROLL
          for (int part = 0; part < 4; ++part) {
            a[part] = kBits == 8 ? PairOfBytes<kFormat>(r[2 * i + part / 2], part % 2 != 0)
                                 : PairOfHalfBytes(r[i], part % 2 != 0, part / 2 != 0);
          }
        }
        BH_UNROLL
        for (int n = 0; n < kTiles; ++n) {
          Multiply((k + i) % 2 == 0 ? scores[n] : others[n], a, query_[k + i][n]);
        }
      }
    }
    ForEach([&](int n, int i) { scores[n][i] += others[n][i]; });
  }

  // Converts to base 2; for codes applies the keys' scales and zeros.
  BH_DEVICE void Scale(const Scaling& scaling, const Seen& seen, Scored& scores) const {
    ForEach([&](int n, int i) {
      float score = scores[n][i];
      if constexpr (Shape::kQuantized) {
        score = fmaf(scaling.scale[i / 2], score, scaling.zero[i / 2] * query_sum_[n][i % 2]);
      }
      scores[n][i] = score * scale_;
    });
    if (p_.soft_cap != 0.0F) {
      ForEach([&](int n, int i) { scores[n][i] = Capped(p_, scores[n][i]); });
    }
    if (seen.all) return;
    ForEach([&](int n, int i) {
      if (!seen.token[i / 2]) scores[n][i] = kMaskedScore;
    });
  }

  // Updates the columns' greatest scores. Rescales sums if one of the warp's has risen.
  BH_DEVICE void Raise(const float (&scores)[kParts][kTiles][4]) {
    float most[kTiles][2];
    bool rises = false;
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        float max = fmaxf(scores[0][n][i], scores[0][n][2 + i]);
        BH_UNROLL
        for (int part = 1; part < kParts; ++part) {
          max = fmaxf(max, fmaxf(scores[part][n][i], scores[part][n][2 + i]));
        }
        BH_UNROLL
        for (int mask = 4; mask < kWarp; mask *= 2)
          max = fmaxf(max, __shfl_xor_sync(kFullMask, max, mask));
        most[n][i] = fmaxf(max, row_max_[n][i]);
        rises = rises || most[n][i] > row_max_[n][i];
      }
    }
    if (__ballot_sync(kFullMask, rises) == 0) return;
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float shrink = Exp2(row_max_[n][i] - most[n][i]);
        row_max_[n][i] = most[n][i];
        sum_[n][i] *= shrink;
        if constexpr (Shape::kQuantized) zero_sum_[n][i] *= shrink;
        BH_UNROLL
        for (int k = 0; k < kDimTiles; ++k) {
          out_[k][n][i] *= shrink;
          out_[k][n][2 + i] *= shrink;
        }
      }
    }
  }

  // Turns scores into weights p, times the values' scales if any, as factors of values.
  BH_DEVICE void Weigh(const Scaling& scaling, const Scored& scores, Pairs& weights) {
    BH_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      float weight[4];
      BH_UNROLL
      for (int i = 0; i < 4; ++i) {
        // If a column has seen nothing yet its weights must be 0, not 2^0.
        const float max = row_max_[n][i % 2] > kMaskedScore ? row_max_[n][i % 2] : 0.0F;
        weight[i] = Exp2(scores[n][i] - max);
        sum_[n][i % 2] += weight[i];
        if constexpr (Shape::kQuantized) {
          zero_sum_[n][i % 2] = fmaf(weight[i], scaling.zero[i / 2], zero_sum_[n][i % 2]);
          weight[i] *= scaling.scale[i / 2];
        }
      }
      weights[n][0] = MovMatrixTrans(PairOf(weight[0], weight[1]));
      weights[n][1] = MovMatrixTrans(PairOf(weight[2], weight[3]));
    }
  }

  BH_DEVICE void AddValues(const unsigned char* values, const Pairs& weights) {
    BH_UNROLL
    for (int k = 0; k < kDimTiles; k += kTilesOfLoad) {
      uint32_t r[4];
      LdMatrixX4Trans(r, values + ValueRowAt<Shape>(k));
      BH_UNROLL
      for (int i = 0; i < kTilesOfLoad; ++i) {
        uint32_t a[4];
        BH_UNROLL
        for (int part = 0; part < 4; ++part) {
          if constexpr (kBits == 16) {
            a[part] = r[part];
          } else if constexpr (kBits == 8) {
            a[part] = PairOfBytes<kFormat>(r[2 * i + part / 2], part % 2 != 0);
          } else {
            a[part] = PairOfHalfBytes(r[i / 2 * 2 + part / 2], part % 2 != 0, i % 2 != 0);
          }
        }
        BH_UNROLL
        for (int n = 0; n < kTiles; ++n) Multiply(out_[k + i][n], a, weights[n]);
      }
    }
  }

  static constexpr int kTilesOfLoad = 16 / kBits;  // tiles of 16 dims

  // The dim of row Row() + 8 high of a tile of values, or -1. Groups of 32 int4 columns are two
  // tiles, of their low and their high halves, and the last group may be shorter
  // (memory/kv_cache.h).
  BH_DEVICE int DimOf(int k, int high) const {
    if constexpr (kBits == 16) return 16 * k + Row() + 8 * high;
    const int in_tile = 2 * Row() + high;
    if constexpr (kBits == 8) return 16 * k + in_tile;
    const int group = k / 2 * 32;
    const int d = p_.cache.head_dim;
    const int half = (d - group < 32 ? d - group : 32) / 2;
    return in_tile < half ? group + k % 2 * half + in_tile : -1;
  }

  const AttendParameters& p_;
  float scale_;
  uint32_t query_[kDimTiles][kTiles][2];
  float query_sum_[kTiles][2];
  float row_max_[kTiles][2];
  float sum_[kTiles][2];
  float zero_sum_[kTiles][2];
  float out_[kDimTiles][kTiles][4];
};

}  // namespace bulkhead::cuda
