// One unit of attention, computed in one thread's scratch.
#pragma once

#include "kernels/attend/attention_chunk.h"
#include "kernels/attend/attention_rows.h"
#include "kernels/attend/attention_tiles.h"
#include "kernels/attend/op.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/transpose_four.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

template <typename Cache>
class UnitRun {
 public:
  using Element = typename Cache::Element;

  UnitRun(const AttentionCall& call, const AttentionUnit& unit, float* scratch)
      : call_(call),
        unit_(unit),
        chunk_(call, unit),
        rows_{call, unit, unit.num_tokens * unit.num_heads, PaddedHeadDim(call.value_dim)},
        span_tokens_(AttentionSpanTokens(call.head_dim)),
        direct_(call.head_dim % Cache::kColumns == 0 &&
                (rows_.count <= kDirectRows || call.format == KvFormat::kF32)) {
    const int64_t count = rows_.count;
    q_ = scratch;
    weights_ = q_ + count * PaddedHeadDim(call.head_dim);
    chunk_o_ = weights_ + count * kAttentionWeightStride;
    rows_.o = chunk_o_ + count * rows_.width;
    span_ = rows_.o + count * rows_.width;
    chunk_l_ = span_ + int64_t{span_tokens_} * PaddedHeadDim(call.head_dim);
    chunk_m_ = chunk_l_ + count;
    rows_.l = chunk_m_ + count;
    rows_.m = rows_.l + count;
    rows_.visible = reinterpret_cast<Range*>(rows_.m + count);
    const int tiles = (rows_.count + kTileRows - 1) / kTileRows;
    tile_rows_ = (rows_.count + tiles - 1) / tiles;
    // A single register tile passes over the whole chunk; more share a span while it is cached.
    const bool at_once = direct_ && tiles == 1 && !call.latent && kTileVectors == 2;
    span_vectors_ = at_once ? kChunkVectors : span_tokens_ / kLanes;
  }

  void Run() {
    rows_.SetVisible();
    for (int row = 0; row < rows_.count; row += tile_rows_) PackQueries(row, TileRowsFrom(row));
    for (int chunk = unit_.chunk_begin; chunk < unit_.chunk_end; ++chunk) {
      const Range seen =
          Common(rows_.visible_to_any, {chunk * kAttentionChunk, (chunk + 1) * kAttentionChunk});
      if (seen.empty()) continue;
      chunk_.Locate(chunk, rows_.visible_to_any);
      const Range vectors = chunk_.VectorsOf(seen);
      for (Range span = FirstSpan(vectors); !span.empty(); span = NextSpan(span, vectors))
        Score(span);
      for (int row = 0; row < rows_.count; ++row) Weigh(row);
      for (Range span = FirstSpan(vectors); !span.empty(); span = NextSpan(span, vectors))
        Sum(span);
      for (int row = 0; row < rows_.count; ++row) {
        if (SeenBy(row).empty()) continue;
        rows_.AddChunk(row, chunk_.positions().begin, chunk_m_[row], chunk_l_[row], ChunkOut(row));
      }
    }
    if (unit_.first_slot < 0) rows_.WriteOutputs();
  }

 private:
  // Up to this many rows read the cache directly; more rows widen a span to f32 first.
  static constexpr int kDirectRows = 8;
  // Maximum rows of a register tile that reads Cache.
  template <typename Read>
  static constexpr int kMaxTileRows = sizeof(typename Read::Element) == 4 || kTileRows < kDirectRows
                                          ? kTileRows
                                          : kDirectRows;

  int TileRowsFrom(int row) const { return Min(tile_rows_, rows_.count - row); }
  // Within the current chunk.
  Range SeenBy(int row) const { return Common(rows_.visible[row], chunk_.positions()); }
  float* ChunkOut(int row) const { return chunk_o_ + int64_t{row} * rows_.width; }

  // Vectors of 16 tokens, relative to the chunk's begin.
  Range FirstSpan(Range vectors) const {
    const int next = (vectors.begin / span_vectors_ + 1) * span_vectors_;
    return {vectors.begin, Min(next, vectors.end)};
  }
  Range NextSpan(Range span, Range vectors) const {
    return {span.end, Min(span.end + span_vectors_, vectors.end)};
  }

  // The queries of a register tile as [d][rows].
  void PackQueries(int first, int rows) {
    float* const packed = q_ + int64_t{first} * call_.head_dim;
    const int whole_dim = call_.head_dim / 4 * 4;
    int row = 0;
    for (; row + 4 <= rows; row += 4) {
      const float* from[4];
      for (int r = 0; r < 4; ++r) from[r] = rows_.QueryOf(first + row + r);
      for (int i = 0; i < whole_dim; i += 4) TransposeFour(from, i, packed + i * rows + row, rows);
      for (int i = whole_dim; i < call_.head_dim; ++i) {
        for (int r = 0; r < 4; ++r) packed[i * rows + row + r] = from[r][i];
      }
    }
    for (; row < rows; ++row) {
      const float* q = rows_.QueryOf(first + row);
      for (int i = 0; i < call_.head_dim; ++i) packed[i * rows + row] = q[i];
    }
  }

  void Score(Range span) {
    if (direct_) return ScoreSpan<Cache>(chunk_.keys(), chunk_.KeyStride(), span);
    constexpr int kNumbers = Cache::kNumbers;
    const float* wide[kChunkVectors];
    for (int v = span.begin; v < span.end; ++v) {
      float* out = span_ + v * kLanes % span_tokens_;
      const Element* key = chunk_.keys()[v];
      const Scaling scaling = ScalingOfTokens<Cache>(chunk_.KeyScalings(), v * kLanes);
      for (int i = 0; i < call_.head_dim; i += kNumbers, key += chunk_.KeyStride()) {
        F32x16 k[kNumbers];
        Cache::LoadKeys(key, scaling, k);
        for (int j = 0; j < kNumbers; ++j) Store(out + (i + j) * span_tokens_, k[j]);
      }
      wide[v] = out;
    }
    ScoreSpan<WidenedSpan>(wide, span_tokens_, span);
  }

  template <typename Read>
  void ScoreSpan(const typename Read::Element* const* keys, int64_t stride, Range span) {
    for (int row = 0; row < rows_.count; row += tile_rows_) {
      const int rows = TileRowsFrom(row);
      const Range seen = rows_.SeenByAny(row, rows, chunk_.positions());
      if (seen.empty()) continue;
      const Range vectors = Common(chunk_.VectorsOf(seen), span);
      if (vectors.empty()) continue;
      const ScoreJob<Read> job{keys,
                               stride,
                               chunk_.KeyScalings(),
                               q_ + int64_t{row} * call_.head_dim,
                               call_.head_dim,
                               ScoreScaleOf(call_, unit_),
                               weights_ + row * kAttentionWeightStride};
      ScoreAnyRows<Read, kMaxTileRows<Read>>(job, rows, vectors.begin, vectors.end);
    }
  }

  // Turns scores into weights: unseen positions become -infinity, and so 0.
  void Weigh(int row) {
    const Range seen = SeenBy(row);
    if (seen.empty()) return;
    const Range vectors = chunk_.VectorsOf(seen);
    float* weights = weights_ + row * kAttentionWeightStride;
    const float m = MaskScores(weights, vectors, chunk_.FromBegin(seen), call_.soft_cap);
    F32x16 sum = Zero();
    for (int v = vectors.begin; v < vectors.end; ++v) {
      const F32x16 p = Exp(Sub(Load(weights + v * kLanes), Set1(m)));
      sum = Add(sum, p);
      Store(weights + v * kLanes, p);
    }
    chunk_m_[row] = m;
    chunk_l_[row] = SumLanes(sum);
    for (int c = 0; c < rows_.width; c += kLanes) Store(ChunkOut(row) + c, Zero());
  }

  void Sum(Range span) {
    if (call_.latent) return SumKeys(span);
    if (direct_) return SumSpan<Cache>(chunk_.values(), chunk_.ValueStride(), span);
    const float* wide[kChunkVectors];
    for (int v = span.begin; v < span.end; ++v) {
      float* out = span_ + v * kLanes % span_tokens_ * rows_.width;
      wide[v] = out;
      const Element* value = chunk_.values()[v];
      for (int s = 0; s < kLanes; ++s, value += chunk_.ValueStride(), out += rows_.width) {
        const Scaling scaling = ScalingOfToken<Cache>(chunk_.ValueScalings(), v * kLanes + s);
        Cache::WidenValue(value, call_.head_dim, rows_.width, scaling, out);
      }
    }
    SumSpan<WidenedSpan>(wide, rows_.width, span);
  }

  // The same if values are the first columns of keys, with adjacent tokens.
  void SumKeys(Range span) {
    constexpr int kNumbers = Cache::kNumbers;
    const float* wide[kChunkVectors];
    for (int v = span.begin; v < span.end; ++v) {
      float* out = span_ + v * kLanes % span_tokens_ * rows_.width;
      wide[v] = out;
      const Element* key = chunk_.keys()[v];
      const Scaling scaling = ScalingOfTokens<Cache>(chunk_.KeyScalings(), v * kLanes);
      for (int c = 0; c < rows_.width; c += kLanes) {
        I32x16 columns[kLanes];
        for (int i = 0; i < kLanes; i += kNumbers, key += chunk_.KeyStride()) {
          F32x16 k[kNumbers] = {};
          if (c + i < call_.head_dim) Cache::LoadKeys(key, scaling, k);
          for (int j = 0; j < kNumbers; ++j) columns[i + j] = BitsOf(k[j]);
        }
        Transpose(columns);
        for (int s = 0; s < kLanes; ++s) Store(out + s * rows_.width + c, FromBits(columns[s]));
      }
    }
    SumSpan<WidenedSpan>(wide, rows_.width, span);
  }

  // The tile passes together over the positions that all its rows see, and each row separately over
  // the others.
  template <typename Read>
  void SumSpan(const typename Read::Element* const* values, int64_t stride, Range span) {
    const int begin = chunk_.positions().begin;
    const Range positions{begin + span.begin * kLanes, begin + span.end * kLanes};
    for (int row = 0; row < rows_.count; row += tile_rows_) {
      const int rows = TileRowsFrom(row);
      Range shared = positions;
      for (int r = row; r < row + rows; ++r) shared = Common(shared, rows_.visible[r]);
      if (shared.empty()) shared = {positions.end, positions.end};
      for (int r = row; r < row + rows; ++r) {
        const Range before = Common(rows_.visible[r], {positions.begin, shared.begin});
        SumRows<Read>(values, stride, before, r, 1);
      }
      SumRows<Read>(values, stride, shared, row, rows);
      for (int r = row; r < row + rows; ++r) {
        const Range after = Common(rows_.visible[r], {shared.end, positions.end});
        SumRows<Read>(values, stride, after, r, 1);
      }
    }
  }

  template <typename Read>
  BH_INLINE void SumRows(const typename Read::Element* const* values, int64_t stride,
                         Range positions, int row, int rows) {
    if (positions.empty()) return;
    const ValueJob<Read> job{values,
                             stride,
                             chunk_.ValueScalings(),
                             chunk_.FromBegin(positions).begin,
                             chunk_.FromBegin(positions).end,
                             weights_ + row * kAttentionWeightStride,
                             ChunkOut(row),
                             rows_.width};
    ValueAnyRows<Read, kMaxTileRows<Read>>(job, rows);
  }

  const AttentionCall& call_;
  const AttentionUnit& unit_;
  CacheChunk<Cache> chunk_;  // the current chunk
  UnitRows rows_;
  const int span_tokens_;
  const bool direct_;
  int tile_rows_ = 0;
  int span_vectors_ = 0;
  // In scratch, one entry or line per row.
  float* q_;
  float* weights_;
  float* chunk_o_;
  float* span_;  // keys [d][span_tokens_] or values [span_tokens_][width], widened
  float* chunk_l_;
  float* chunk_m_;
};

}  // namespace bulkhead::BH_ISA
