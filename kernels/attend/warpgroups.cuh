// Attention with many columns by warpgroup products (wgmma), for compute capability 9.0. Columns
// and range as in attention.cuh, 64 columns per warpgroup of a block; the warpgroups share tiles of
// kTokens of the cache.
//   scores [columns][tokens] = queries keys      out [columns][dims] += weights values
// While the softmax of one tile runs, so do the previous tile's products with its values.
#pragma once

#include "kernels/attend/attention.cuh"
#include "kernels/attend/cuda_kernels.h"
#include "kernels/attend/options.cuh"
#include "kernels/attend/warpgroups_cache.cuh"
#include "kernels/attend/warpgroups_codes.cuh"
#include "kernels/cuda/out_rows.cuh"
#include "wgmma_intrinsics.h"

namespace bulkhead::cuda {

// One thread's data: for two columns, g and g + 8 of its warp's 16, all tokens or dims 8 t + 2 j
// and the next one; g = lane / 4, j = lane % 4.
template <KvFormat kFormat, typename Shape>
class WarpgroupLane {
  static constexpr KvFormat kNumbers = NumbersOf(kFormat);

 public:
  BH_DEVICE WarpgroupLane(const AttendParameters& p, const Columns& columns, int kv_head,
                          const CacheRange& range, unsigned char* shared)
      : p_(p), columns_(columns), range_(range), shared_(shared) {
    const int last_column = columns.size() - 1;
    const auto position_of = [&](int column) {
      return p.cache.position[columns.Token(column < last_column ? column : last_column)];
    };
    BH_UNROLL
    for (int i = 0; i < 2; ++i) position_[i] = position_of(ColumnOf(i));
    const int of_group = WarpIndex() / 4 * 64;
    first_all_see_ = FirstSeenBy(position_of(of_group + 63));
    last_all_see_ = LastSeenBy(position_of(of_group));
    factor_ = p.scale * kLog2OfE;
    if constexpr (kFormat == KvFormat::kFP8) factor_ *= ScaleIn(p.cache.key_scales, kv_head);
  }

  // Loads queries into shared memory.
  BH_DEVICE void LoadQueries() const {
    constexpr int kChunks = Shape::kDims / 8;
    constexpr int kAtOnce = 4;
    static_assert(Shape::kColumns * kChunks % (kAtOnce * Shape::kComputeThreads) == 0);
    const int chunk = int(threadIdx.x) % kChunks;
    BH_NO_UNROLL
    for (int first = 0; first < Shape::kColumns;
         first += kAtOnce * Shape::kComputeThreads / kChunks) {
      BH_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int column = first + (i * Shape::kComputeThreads + int(threadIdx.x)) / kChunks;
        Words4 words = {};
        if (column < columns_.size()) {
          const float* const q = p_.qkv.data + columns_.Token(column) * p_.qkv.stride +
                                 static_cast<int64_t>(columns_.Head(column)) * Shape::kDims +
                                 8 * chunk;
          const Floats4 low = LoadFour(q);
          const Floats4 high = LoadFour(q + 4);
          words = {PairOf<kNumbers>(low.v[0], low.v[1]), PairOf<kNumbers>(low.v[2], low.v[3]),
                   PairOf<kNumbers>(high.v[0], high.v[1]), PairOf<kNumbers>(high.v[2], high.v[3])};
        }
        StoreVector(shared_ + chunk / 8 * (Shape::kColumns * 128) + ChunkOfRow(column, chunk % 8),
                    words);
      }
    }
  }

  using Scores = float[Shape::kTokens / 2];

  BH_DEVICE void BeginScores(const unsigned char* keys, Scores& scores) const {
    const uint64_t k = TilesOf(keys, Shape::kDims * 128);
    const unsigned char* const rows = shared_ + WarpIndex() / 4 * (64 * 128);
    BH_UNROLL
    for (int i = 0; i < Shape::kDims / 16; ++i) {
      const uint64_t q = TilesOf(rows + i / 4 * (Shape::kColumns * 128) + i % 4 * 32, 0);
      Product(scores, q, FurtherTiles(k, 2 * i), i > 0);
    }
    CommitProducts();
  }

  BH_DEVICE void BeginOut(const unsigned char* values) {
    const uint64_t v = TilesOf(values, Shape::kTokens * 128);
    BH_UNROLL
    for (int i = 0; i < Shape::kTokens / 16; ++i) {
      Product(out_, weights_[i], FurtherTiles(v, 2 * i), true);
    }
    CommitProducts();
  }
  template <int kLeft>
  BH_DEVICE void WaitForOut() {
    WaitForProducts<kLeft>(out_);
  }

  // Turns scores into weights, in f32; shrink: the factor for sums so far.
  BH_DEVICE void Softmax(int token0, Scores& scores, float (&shrink)[2]) {
    if (token0 < first_all_see_ || token0 + Shape::kTokens - 1 > last_all_see_) {
      Mask(token0, scores);
    }
    BH_UNROLL
    for (int i = 0; i < 2; ++i) {
      float max = max_[i];
      BH_UNROLL
      for (int t = 0; t < Shape::kTokens / 8; ++t) {
        max = fmaxf(max, fmaxf(scores[4 * t + 2 * i], scores[4 * t + 2 * i + 1]));
      }
      max = fmaxf(max, __shfl_xor_sync(kFullMask, max, 1));
      max = fmaxf(max, __shfl_xor_sync(kFullMask, max, 2));
      // If a column has seen nothing yet its weights must be 0, not 2^0.
      const float of = max > kMaskedScore ? max * factor_ : 0.0F;
      shrink[i] = Exp2(max_[i] * factor_ - of);  // 1 if the maximum stays
      max_[i] = max;
      float sum = 0.0F;
      BH_UNROLL
      for (int t = 0; t < Shape::kTokens / 8; ++t) {
        BH_UNROLL
        for (int e = 0; e < 2; ++e) {
          float& score = scores[4 * t + 2 * i + e];
          score = Exp2(fmaf(score, factor_, -of));
          sum += score;
        }
      }
      sum_[i] = fmaf(sum_[i], shrink[i], sum);
    }
  }

  // For the next product with values.
  BH_DEVICE void TakeWeights(const Scores& scores) {
    BH_UNROLL
    for (int t = 0; t < Shape::kTokens / 4; ++t) {
      weights_[t / 4][t % 4] = PairOf<kNumbers>(scores[2 * t], scores[2 * t + 1]);
    }
  }
  BH_DEVICE void Shrink(const float (&shrink)[2]) {
    BH_UNROLL
    for (int t = 0; t < Shape::kDims / 2; ++t) out_[t] *= shrink[t / 2 % 2];
  }

  template <typename Put>
  BH_DEVICE void Finish(int kv_head, const Put& put) {
    float of_values = 1.0F;
    if constexpr (kFormat == KvFormat::kFP8) of_values = ScaleIn(p_.cache.value_scales, kv_head);
    BH_UNROLL
    for (int i = 0; i < 2; ++i) {
      float sum = sum_[i];
      sum += __shfl_xor_sync(kFullMask, sum, 1);
      sum += __shfl_xor_sync(kFullMask, sum, 2);
      if (ColumnOf(i) >= columns_.size()) continue;
      const float scale =
          of_values * put.Begin(ColumnOf(i), max_[i] * factor_, sum, LaneIndex() % 4 == 0);
      BH_UNROLL
      for (int t = 0; t < Shape::kDims / 8; ++t) {
        put.Two(ColumnOf(i), 8 * t + LaneIndex() % 4 * 2,
                {out_[4 * t + 2 * i] * scale, out_[4 * t + 2 * i + 1] * scale});
      }
    }
  }

 private:
  BH_DEVICE static float ScaleIn(const float* scales, int kv_head) {
    return scales != nullptr ? scales[kv_head] : 1.0F;
  }
  // Within the range.
  BH_DEVICE int FirstSeenBy(int position) const {
    const int first = FirstSeen(p_, position);
    return first > range_.first ? first : range_.first;
  }
  BH_DEVICE int LastSeenBy(int position) const {
    return position < range_.end ? position : range_.end - 1;
  }
  BH_DEVICE static int ColumnOf(int i) { return WarpIndex() * 16 + LaneIndex() / 4 + 8 * i; }

  template <int kCount, typename A>
  BH_DEVICE static void Product(float (&c)[kCount], const A& a, uint64_t b, bool add) {
    if constexpr (kNumbers == KvFormat::kF16) {
      ProductF16(c, a, b, add);
    } else {
      ProductBf16(c, a, b, add);
    }
  }

  BH_DEVICE void Mask(int token0, Scores& scores) const {
    BH_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int first = FirstSeenBy(position_[i]) - token0 - LaneIndex() % 4 * 2;
      const int last = LastSeenBy(position_[i]) - token0 - LaneIndex() % 4 * 2;
      BH_UNROLL
      for (int t = 0; t < Shape::kTokens / 8; ++t) {
        BH_UNROLL
        for (int e = 0; e < 2; ++e) {
          const int token = 8 * t + e;
          if (token < first || token > last) scores[4 * t + 2 * i + e] = kMaskedScore;
        }
      }
    }
  }

  const AttendParameters& p_;
  const Columns columns_;
  const CacheRange range_;
  unsigned char* const shared_;
  int position_[2];
  int first_all_see_;  // for this warpgroup's columns
  int last_all_see_;
  float factor_;
  float max_[2] = {kMaskedScore, kMaskedScore};
  float sum_[2] = {};  // over this thread's tokens
  uint32_t weights_[Shape::kTokens / 16][4];
  float out_[Shape::kDims / 2] = {};
};

// The computing warpgroups: columns attend to `range`; put as in attend_blocks.cuh.
template <KvFormat kFormat, typename Shape, typename Put>
BH_DEVICE void ComputeTiles(const AttendParameters& p, const Columns& columns, int kv_head,
                            const CacheRange& range, const Put& put) {
  int token0 = range.first / Shape::kTokens * Shape::kTokens;
  WarpgroupLane<kFormat, Shape> lane(p, columns, kv_head, range, SharedMemory());
  lane.LoadQueries();
  float scores[Shape::kTokens / 2];
  float shrink[2];
  int stage = 0;
  FenceForProducts();
  __syncthreads();
  BeginProducts();
  lane.BeginScores(KeysOf<Shape>(stage), scores);
  WaitForProducts<0>(scores);
  lane.Softmax(token0, scores, shrink);
  lane.TakeWeights(scores);
  for (token0 += Shape::kTokens; token0 < range.end; token0 += Shape::kTokens) {
    stage = 1 - stage;
    __syncthreads();
    BeginProducts();
    lane.BeginScores(KeysOf<Shape>(stage), scores);
    lane.BeginOut(ValuesOf<Shape>(1 - stage));
    WaitForProducts<1>(scores);
    lane.Softmax(token0, scores, shrink);
    lane.template WaitForOut<0>();
    lane.Shrink(shrink);
    lane.TakeWeights(scores);
  }
  __syncthreads();
  BeginProducts();
  lane.BeginOut(ValuesOf<Shape>(stage));
  lane.template WaitForOut<0>();
  lane.Finish(kv_head, put);
}

// for_block(over) as in attend_blocks.cuh.
template <KvFormat kFormat, typename Shape, typename ForBlock>
BH_DEVICE void AttendByWarpgroups(const AttendParameters& p, const ForBlock& for_block) {
  if (int(threadIdx.x) >= Shape::kComputeThreads) {
    GiveRegisters<Shape::kCopyRegisters>();
    for_block(
        [&](const Columns& columns, int kv_head, const CacheRange& range, const auto& /*put*/) {
          const int64_t slot = p.cache.seq_slot[p.cache.token_seq[columns.token0]];
          const HeadCache head{&p.cache, p.cache.block_tables + slot * p.cache.block_table_stride,
                               kv_head * p.cache.head_bytes};
          if constexpr (KvElementBits(kFormat) <= 8) {
            ExpandTiles<Shape>(head, range);
          } else {
            CopyTiles<Shape>(head, range);
          }
        });
  } else {
    TakeRegisters<Shape::kComputeRegisters>();
    for_block([&](const Columns& columns, int kv_head, const CacheRange& range, const auto& put) {
      ComputeTiles<kFormat, Shape>(p, columns, kv_head, range, put);
    });
  }
}

}  // namespace bulkhead::cuda
