// One unit of attention at work, in the scratch of one thread.
#pragma once

#include "kernels/attend/attention_rows.h"
#include "kernels/attend/attention_tiles.h"
#include "kernels/attend/op.h"
#include "kernels/simd/exp_constants.h"
#include "kernels/simd/soft_cap.h"
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
        rows_(unit.num_tokens * unit.num_heads),
        width_(PaddedHeadDim(call.value_dim)),
        span_tokens_(AttentionSpanTokens(call.head_dim)),
        direct_(call.head_dim % Cache::kColumns == 0 &&
                (rows_ <= kDirectRows || call.format == KvFormat::kF32)),
        q_(scratch),
        weights_(q_ + int64_t{rows_} * PaddedHeadDim(call.head_dim)),
        chunk_o_(weights_ + int64_t{rows_} * kAttentionWeightStride),
        o_(chunk_o_ + int64_t{rows_} * width_),
        span_(o_ + int64_t{rows_} * width_),
        chunk_l_(span_ + int64_t{span_tokens_} * PaddedHeadDim(call.head_dim)),
        chunk_m_(chunk_l_ + rows_),
        l_(chunk_m_ + rows_),
        m_(l_ + rows_),
        visible_(reinterpret_cast<Range*>(m_ + rows_)) {
    const int tiles = (rows_ + kTileRows - 1) / kTileRows;
    tile_rows_ = (rows_ + tiles - 1) / tiles;
    // One register tile passes over a chunk at once; more share a span while the caches hold it.
    const bool at_once = direct_ && tiles == 1 && !call.latent && kTileVectors == 2;
    span_vectors_ = at_once ? kChunkVectors : span_tokens_ / kLanes;
  }

  void Run() {
    SetUpRows();
    for (int chunk = unit_.chunk_begin; chunk < unit_.chunk_end; ++chunk) {
      chunk_ = {chunk * kAttentionChunk, (chunk + 1) * kAttentionChunk};
      const Range seen = Common(visible_to_any_, chunk_);
      if (seen.empty()) continue;
      const Range vectors = VectorsOf(seen);
      LocateVectors(vectors);
      LookAhead(vectors, chunk + 1);
      for (Range span = FirstSpan(vectors); !span.empty(); span = NextSpan(span, vectors))
        Score(span);
      for (int row = 0; row < rows_; ++row) Weigh(row);
      for (Range span = FirstSpan(vectors); !span.empty(); span = NextSpan(span, vectors))
        Sum(span);
      for (int row = 0; row < rows_; ++row) KeepChunk(row);
    }
    if (unit_.first_slot >= 0) return;
    for (int row = 0; row < rows_; ++row) {
      float* o = o_ + int64_t{row} * width_;
      if (call_.sinks != nullptr) JoinSink(call_.sinks[HeadOf(row)], m_[row], l_ + row, o, width_);
      WriteOut(o, l_[row], ValueScaleOf(call_, unit_), call_.value_dim, RowOut(row));
    }
  }

 private:
  static constexpr int kChunkVectors = kAttentionChunk / kLanes;
  // Up to this many rows read the cache as it is; more rows widen a span to f32 first.
  static constexpr int kDirectRows = 8;
  // The most rows of a register tile that reads Cache.
  template <typename Read>
  static constexpr int kMaxTileRows = sizeof(typename Read::Element) == 4 || kTileRows < kDirectRows
                                          ? kTileRows
                                          : kDirectRows;

  int TokenOf(int row) const { return unit_.first_token + row / unit_.num_heads; }
  int HeadOf(int row) const { return unit_.first_head + row % unit_.num_heads; }
  float* RowOut(int row) const {
    return call_.out + TokenOf(row) * call_.out_stride + HeadOf(row) * call_.value_dim;
  }
  // Between the values of neighbouring tokens, in elements.
  int64_t ValueStride() const { return call_.head_dim / Cache::kNumbers; }
  TokenScalings KeyScalings() const { return {scaling_[0], scaling_[1]}; }
  TokenScalings ValueScalings() const { return {scaling_[2], scaling_[3]}; }
  int NumScalings() const { return call_.latent ? 2 : 4; }
  int TileRowsFrom(int row) const { return Min(tile_rows_, rows_ - row); }

  // Vectors of 16 tokens, counted from the chunk's begin.
  Range VectorsOf(Range positions) const {
    return {(positions.begin - chunk_.begin) / kLanes,
            (positions.end - chunk_.begin + kLanes - 1) / kLanes};
  }
  Range FirstSpan(Range vectors) const {
    const int next = (vectors.begin / span_vectors_ + 1) * span_vectors_;
    return {vectors.begin, Min(next, vectors.end)};
  }
  Range NextSpan(Range span, Range vectors) const {
    return {span.end, Min(span.end + span_vectors_, vectors.end)};
  }

  const float* QueryOf(int row) const {
    return call_.q + TokenOf(row) * call_.q_stride + HeadOf(row) * call_.head_dim;
  }

  // Visible ranges, and the queries of each register tile as [d][rows].
  void SetUpRows() {
    visible_to_any_ = VisibleTo(call_.position[unit_.first_token], call_);
    for (int row = 0; row < rows_; ++row) {
      visible_[row] = VisibleTo(call_.position[TokenOf(row)], call_);
      visible_to_any_.begin = Min(visible_to_any_.begin, visible_[row].begin);
      visible_to_any_.end = Max(visible_to_any_.end, visible_[row].end);
    }
    for (int row = 0; row < rows_; row += tile_rows_) PackQueries(row, TileRowsFrom(row));
  }

  void PackQueries(int first, int rows) {
    float* const packed = q_ + int64_t{first} * call_.head_dim;
    const int whole_dim = call_.head_dim / 4 * 4;
    int row = 0;
    for (; row + 4 <= rows; row += 4) {
      const float* from[4];
      for (int r = 0; r < 4; ++r) from[r] = QueryOf(first + row + r);
      for (int i = 0; i < whole_dim; i += 4) TransposeFour(from, i, packed + i * rows + row, rows);
      for (int i = whole_dim; i < call_.head_dim; ++i) {
        for (int r = 0; r < 4; ++r) packed[i * rows + row + r] = from[r][i];
      }
    }
    for (; row < rows; ++row) {
      const float* q = QueryOf(first + row);
      for (int i = 0; i < call_.head_dim; ++i) packed[i * rows + row] = q[i];
    }
  }

  // Of the block that holds `position`.
  const char* HeadAt(int position) const {
    return HeadOfBlock(unit_.blocks[position / call_.block_tokens]);
  }
  const char* HeadOfBlock(int64_t block) const {
    return call_.kv + block * call_.block_bytes + unit_.kv_head * call_.head_bytes;
  }

  void LocateVectors(Range vectors) {
    const int first = chunk_.begin + vectors.begin * kLanes;
    const int32_t* block = unit_.blocks + first / call_.block_tokens;
    int offset = first % call_.block_tokens;
    for (int v = vectors.begin; v < vectors.end; ++v, offset += kLanes) {
      if (offset == call_.block_tokens) {
        offset = 0;
        ++block;
      }
      const char* head = HeadOfBlock(*block);
      keys_[v] = reinterpret_cast<const Element*>(head) + offset;
      values_[v] =
          reinterpret_cast<const Element*>(head + call_.values_offset) + offset * ValueStride();
      if constexpr (Cache::kQuantized) WidenScaling(head + call_.scaling_offset, offset, v);
    }
  }

  // While the last keys are read the first values are fetched, and while the last values are read
  // the next chunk's first keys. Its scaling, far apart, is fetched at once.
  void LookAhead(Range vectors, int next_chunk) {
    for (int i = 0; i < kAttentionAhead; ++i) {
      keys_[vectors.end + i] = values_[Min(vectors.begin + i, vectors.end - 1)];
      values_[vectors.end + i] = values_[vectors.end - 1];
    }
    if (next_chunk == unit_.chunk_end) return;
    const int begin = next_chunk * kAttentionChunk;
    const Range seen = Common(visible_to_any_, {begin, begin + kAttentionChunk});
    const int first = seen.begin / kLanes * kLanes;
    for (int i = 0; first + i * kLanes < seen.end; ++i) {
      const int64_t offset = (first + i * kLanes) % call_.block_tokens;
      const char* head = HeadAt(first + i * kLanes);
      if (i < kAttentionAhead) {
        values_[vectors.end + i] = reinterpret_cast<const Element*>(head) + offset;
      }
      if constexpr (Cache::kQuantized) {
        const uint16_t* scaling = reinterpret_cast<const uint16_t*>(head + call_.scaling_offset);
        for (int j = 0; j < NumScalings(); ++j) Prefetch(scaling + j * call_.block_tokens + offset);
      }
    }
  }

  void WidenScaling(const char* scaling, int64_t offset, int v) {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(scaling) + offset;
    for (int i = 0; i < NumScalings(); ++i, p += call_.block_tokens) {
      Store(scaling_[i] + v * kLanes, LoadF16(p));
    }
  }

  void Score(Range span) {
    if (direct_) return ScoreSpan<Cache>(keys_, call_.block_tokens, span);
    constexpr int kNumbers = Cache::kNumbers;
    const float* wide[kChunkVectors];
    for (int v = span.begin; v < span.end; ++v) {
      float* out = span_ + v * kLanes % span_tokens_;
      const Element* key = keys_[v];
      const Scaling scaling = ScalingOfTokens<Cache>(KeyScalings(), v * kLanes);
      for (int i = 0; i < call_.head_dim; i += kNumbers, key += call_.block_tokens) {
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
    for (int row = 0; row < rows_; row += tile_rows_) {
      const int rows = TileRowsFrom(row);
      Range seen = visible_[row];
      for (int r = row + 1; r < row + rows; ++r) {
        seen = {Min(seen.begin, visible_[r].begin), Max(seen.end, visible_[r].end)};
      }
      seen = Common(seen, chunk_);
      if (seen.empty()) continue;
      const Range vectors = Common(VectorsOf(seen), span);
      if (vectors.empty()) continue;
      const ScoreJob<Read> job{keys,
                               stride,
                               KeyScalings(),
                               q_ + int64_t{row} * call_.head_dim,
                               call_.head_dim,
                               ScoreScaleOf(call_, unit_),
                               weights_ + row * kAttentionWeightStride};
      ScoreAnyRows<Read, kMaxTileRows<Read>>(job, rows, vectors.begin, vectors.end);
    }
  }

  // Scores become weights: what the row does not see becomes -infinity, and so 0.
  void Weigh(int row) {
    const Range seen = Common(visible_[row], chunk_);
    if (seen.empty()) return;
    const Range vectors = VectorsOf(seen);
    float* weights = weights_ + row * kAttentionWeightStride;
    for (int v = vectors.begin; call_.soft_cap != 0.0f && v < vectors.end; ++v) {
      Store(weights + v * kLanes, SoftCap(Load(weights + v * kLanes), call_.soft_cap));
    }
    for (int s = vectors.begin * kLanes; s < seen.begin - chunk_.begin; ++s) {
      weights[s] = -__builtin_inff();
    }
    for (int s = seen.end - chunk_.begin; s < vectors.end * kLanes; ++s) {
      weights[s] = -__builtin_inff();
    }
    F32x16 max = Load(weights + vectors.begin * kLanes);
    for (int v = vectors.begin + 1; v < vectors.end; ++v) {
      max = Max(max, Load(weights + v * kLanes));
    }
    const float m = MaxLanes(max);
    F32x16 sum = Zero();
    for (int v = vectors.begin; v < vectors.end; ++v) {
      const F32x16 p = Exp(Sub(Load(weights + v * kLanes), Set1(m)));
      sum = Add(sum, p);
      Store(weights + v * kLanes, p);
    }
    chunk_m_[row] = m;
    chunk_l_[row] = SumLanes(sum);
    for (int c = 0; c < width_; c += kLanes) Store(chunk_o_ + int64_t{row} * width_ + c, Zero());
  }

  void Sum(Range span) {
    if (call_.latent) return SumKeys(span);
    if (direct_) return SumSpan<Cache>(values_, ValueStride(), span);
    const float* wide[kChunkVectors];
    for (int v = span.begin; v < span.end; ++v) {
      float* out = span_ + v * kLanes % span_tokens_ * width_;
      wide[v] = out;
      const Element* value = values_[v];
      for (int s = 0; s < kLanes; ++s, value += ValueStride(), out += width_) {
        const Scaling scaling = ScalingOfToken<Cache>(ValueScalings(), v * kLanes + s);
        Cache::WidenValue(value, call_.head_dim, width_, scaling, out);
      }
    }
    SumSpan<WidenedSpan>(wide, width_, span);
  }

  // The same where values are the first columns of keys, whose tokens are neighbours.
  void SumKeys(Range span) {
    constexpr int kNumbers = Cache::kNumbers;
    const float* wide[kChunkVectors];
    for (int v = span.begin; v < span.end; ++v) {
      float* out = span_ + v * kLanes % span_tokens_ * width_;
      wide[v] = out;
      const Element* key = keys_[v];
      const Scaling scaling = ScalingOfTokens<Cache>(KeyScalings(), v * kLanes);
      for (int c = 0; c < width_; c += kLanes) {
        I32x16 columns[kLanes];
        for (int i = 0; i < kLanes; i += kNumbers, key += call_.block_tokens) {
          F32x16 k[kNumbers] = {};
          if (c + i < call_.head_dim) Cache::LoadKeys(key, scaling, k);
          for (int j = 0; j < kNumbers; ++j) columns[i + j] = BitsOf(k[j]);
        }
        Transpose(columns);
        for (int s = 0; s < kLanes; ++s) Store(out + s * width_ + c, FromBits(columns[s]));
      }
    }
    SumSpan<WidenedSpan>(wide, width_, span);
  }

  // A tile passes at once over the positions that all its rows see, and each row alone over its
  // own.
  template <typename Read>
  void SumSpan(const typename Read::Element* const* values, int64_t stride, Range span) {
    const Range positions{chunk_.begin + span.begin * kLanes, chunk_.begin + span.end * kLanes};
    for (int row = 0; row < rows_; row += tile_rows_) {
      const int rows = TileRowsFrom(row);
      Range shared = positions;
      for (int r = row; r < row + rows; ++r) shared = Common(shared, visible_[r]);
      if (shared.empty()) shared = {positions.end, positions.end};
      for (int r = row; r < row + rows; ++r) {
        const Range before = Common(visible_[r], {positions.begin, shared.begin});
        SumRows<Read>(values, stride, before, r, 1);
      }
      SumRows<Read>(values, stride, shared, row, rows);
      for (int r = row; r < row + rows; ++r) {
        const Range after = Common(visible_[r], {shared.end, positions.end});
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
                             ValueScalings(),
                             positions.begin - chunk_.begin,
                             positions.end - chunk_.begin,
                             weights_ + row * kAttentionWeightStride,
                             chunk_o_ + int64_t{row} * width_,
                             width_};
    ValueAnyRows<Read, kMaxTileRows<Read>>(job, rows);
  }

  void KeepChunk(int row) {
    if (Common(visible_[row], chunk_).empty()) return;
    const float* chunk_o = chunk_o_ + int64_t{row} * width_;
    const int chunk = chunk_.begin / kAttentionChunk;
    if (unit_.first_slot >= 0) {
      const int token = row / unit_.num_heads;
      float* slot = call_.slots + AttentionSlot(call_, unit_, token, HeadOf(row), chunk) *
                                      AttentionSlotFloats(call_.value_dim);
      Keep(row, slot, slot + width_, slot + width_ + 1);
    } else if (chunk == visible_[row].begin / kAttentionChunk) {
      Keep(row, o_ + int64_t{row} * width_, m_ + row, l_ + row);
    } else {
      Join(chunk_m_[row], chunk_l_[row], chunk_o, m_ + row, l_ + row, o_ + int64_t{row} * width_,
           width_);
    }
  }

  void Keep(int row, float* o, float* m, float* l) const {
    *m = chunk_m_[row];
    *l = chunk_l_[row];
    for (int c = 0; c < width_; c += kLanes)
      Store(o + c, Load(chunk_o_ + int64_t{row} * width_ + c));
  }

  const AttentionCall& call_;
  const AttentionUnit& unit_;
  const int rows_;
  const int width_;
  const int span_tokens_;
  const bool direct_;
  int tile_rows_ = 0;
  int span_vectors_ = 0;
  // In scratch, one entry or line for each row.
  float* q_;
  float* weights_;
  float* chunk_o_;
  float* o_;
  float* span_;  // keys [d][span_tokens_] or values [span_tokens_][width], widened
  float* chunk_l_;
  float* chunk_m_;
  float* l_;
  float* m_;
  Range* visible_;
  Range visible_to_any_{};
  Range chunk_{};  // the chunk at hand
  const Element* keys_[kChunkVectors + kAttentionAhead];
  const Element* values_[kChunkVectors + kAttentionAhead];
  // Key scales, key zeros, value scales and value zeros of the chunk's tokens.
  float scaling_[4][Cache::kQuantized ? kAttentionChunk : 1];
};

}  // namespace bulkhead::BH_ISA
