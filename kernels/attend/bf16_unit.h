// One unit of attention over a bf16 cache with bf16 products: shared by tile registers
// (bf16_amx.cc) and vectors (bf16_float_simd.cc). Scores of a chunk become weights in bf16, in the
// same place, and a chunk's sums are joined to those of its rows.
#pragma once

#include "kernels/attend/attention_rows.h"
#include "kernels/attend/in_bf16.h"
#include "kernels/attend/interleaved_chunk.h"
#include "kernels/simd/exp.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

class Bf16Unit {
 protected:
  static constexpr int kMaxRows = 2 * kTileRegisterRows;  // rows worked on together

  // `tile_rows`: maximum per tile. A chunk's keys and values stay interleaved if it `keeps` them.
  Bf16Unit(const AttentionCall& call, const AttentionUnit& unit, int tile_rows, bool keeps,
           float* scratch, const AttentionTileLayout& at)
      : call_(call),
        chunk_(call, unit, keeps, reinterpret_cast<char*>(scratch + at.keys),
               reinterpret_cast<char*>(scratch + at.values)),
        rows_{call,
              unit,
              unit.num_tokens * unit.num_heads,
              PaddedHeadDim(call.value_dim),
              scratch + at.o,
              scratch + at.l,
              scratch + at.m,
              reinterpret_cast<Range*>(scratch + at.visible)},
        scale_(ScoreScaleOf(call, unit)),
        tiles_((rows_.count + tile_rows - 1) / tile_rows),
        tile_rows_((rows_.count + tiles_ - 1) / tiles_),
        scores_(scratch + at.scores),
        chunk_o_(scratch + at.chunk_o) {}

  // In the current chunk, relative to its begin.
  Range SeenBy(int row) const {
    return chunk_.FromBegin(Common(rows_.visible[row], chunk_.positions()));
  }
  static Range VectorsOf(Range groups) { return {2 * groups.begin, 2 * groups.end}; }

  // For row `r` of the rows worked on together.
  int LineOf(int r) const { return r / tile_rows_ * kTileRegisterRows + r % tile_rows_; }
  float* ScoresOf(int r) const { return scores_ + LineOf(r) * kAttentionWeightStride; }
  float* OutOf(int r) const { return chunk_o_ + LineOf(r) * rows_.width; }

  // Turns the scores of rows from `first` on into weights: 0 for positions in `groups` that are not
  // seen. store(line, group, a, b): 32 of them. Each loop goes row after row, so that the CPU can
  // work on several rows at once.
  template <typename StoreWeights>
  BH_INLINE void Weigh(int first, int rows, Range groups, float* m, float* l,
                       const StoreWeights& store) const {
    // The largest product gives the largest score: the scale becomes part of `power`.
    const bool by_power = call_.soft_cap == 0.0f && scale_ > 0.0f;
    const float power = by_power ? scale_ * kExpLog2E : kExpLog2E;
    float max[kMaxRows] = {};
    for (int r = 0; r < rows; ++r) {
      const Range seen = SeenBy(first + r);
      if (seen.empty()) continue;
      const Range vectors = VectorsOf(GroupsOf(seen));
      if (!by_power) Scale(ScoresOf(r), vectors);
      max[r] = MaskScores(ScoresOf(r), vectors, seen, call_.soft_cap);
      m[r] = by_power ? max[r] * scale_ : max[r];
    }
    F32x16 sum[kMaxRows];
    for (int r = 0; r < rows; ++r) {
      sum[r] = WeighRow(GroupsOf(SeenBy(first + r)), groups, power, max[r], ScoresOf(r), store);
    }
    for (int r = 0; r < rows; ++r) l[r] = SumLanes(sum[r]);
  }

  // Joins the current chunk to rows from `first` on.
  void KeepChunk(int first, int rows, const float* m, const float* l) {
    for (int r = 0; r < rows; ++r) {
      if (SeenBy(first + r).empty()) continue;
      float* const o = OutOf(r);
      for (int c = 0; c < rows_.width; c += kLanes) Store(o + c, Add(Load(o + c), Zero()));
      rows_.AddChunk(first + r, chunk_.positions().begin, m[r], l[r], o);
    }
  }

  const AttentionCall& call_;
  InterleavedChunk chunk_;  // the current one
  UnitRows rows_;
  const float scale_;
  const int tiles_;  // row tiles
  const int tile_rows_;
  // Layout: AttentionTileLayout.
  float* const scores_;
  float* const chunk_o_;

 private:
  void Scale(float* scores, Range vectors) const {
    for (int v = vectors.begin; v < vectors.end; ++v) {
      Store(scores + v * kLanes, Mul(Load(scores + v * kLanes), Set1(scale_)));
    }
  }

  // `seen`: in groups as well.
  template <typename StoreWeights>
  BH_INLINE static F32x16 WeighRow(Range seen, Range groups, float power, float max, float* scores,
                                   const StoreWeights& store) {
    F32x16 sum = Zero();
    for (int g = groups.begin; g < groups.end; ++g) {
      F32x16 p[2] = {Zero(), Zero()};
      if (seen.begin <= g && g < seen.end) {
        for (int i = 0; i < 2; ++i) {
          const F32x16 score = Load(scores + g * kGroupTokens + i * kLanes);
          p[i] = Exp2ForBf16(Mul(Sub(score, Set1(max)), Set1(power)));
          sum = Add(sum, p[i]);
        }
      }
      store(scores, g, p[0], p[1]);
    }
    return sum;
  }
};

}  // namespace bulkhead::BH_ISA
