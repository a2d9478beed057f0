// The state of one row of attention, a token and a query head: the positions that it sees, and how
// its chunks, and its sink, are joined to one result.
#pragma once

#include "kernels/attend/op.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/exp_constants.h"
#include "kernels/simd/soft_cap.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

BH_INLINE int Min(int a, int b) { return a < b ? a : b; }
BH_INLINE int Max(int a, int b) { return a > b ? a : b; }

struct Range {  // [begin, end)
  int begin;
  int end;
  BH_INLINE bool empty() const { return begin >= end; }
};

BH_INLINE Range Common(Range a, Range b) { return {Max(a.begin, b.begin), Min(a.end, b.end)}; }

BH_INLINE Range VisibleTo(int position, const AttentionCall& call) {
  const int window = call.window > 0 ? Max(position - call.window + 1, 0) : 0;
  const int chunk = call.chunk > 0 ? position / call.chunk * call.chunk : 0;
  return {Max(window, chunk), position + 1};
}

// Joins a chunk's result to the running one of the same row.
BH_INLINE void Join(float chunk_m, float chunk_l, const float* chunk_o, float* m, float* l,
                    float* o, int width) {
  const F32x16 old_m = Set1(*m);
  const F32x16 new_m = Max(old_m, Set1(chunk_m));
  const F32x16 a = Exp(Sub(old_m, new_m));
  const F32x16 b = Exp(Sub(Set1(chunk_m), new_m));
  StoreN(m, new_m, 1);
  StoreN(l, Fma(Set1(*l), a, Mul(Set1(chunk_l), b)), 1);
  for (int c = 0; c < width; c += kLanes) {
    Store(o + c, Fma(Load(o + c), a, Mul(Load(chunk_o + c), b)));
  }
}

// Joins a row's sink, a score without a value, after its chunks.
BH_INLINE void JoinSink(float sink, float m, float* l, float* o, int width) {
  const F32x16 old_m = Set1(m);
  const F32x16 new_m = Max(old_m, Set1(sink));
  const F32x16 a = Exp(Sub(old_m, new_m));
  StoreN(l, Fma(Set1(*l), a, Exp(Sub(Set1(sink), new_m))), 1);
  for (int c = 0; c < width; c += kLanes) Store(o + c, Mul(Load(o + c), a));
}

// The factors of sums of products with the unit's keys, and of outputs.
BH_INLINE float ScoreScaleOf(const AttentionCall& call, const AttentionUnit& unit) {
  return call.key_scales == nullptr ? call.scale : call.scale * call.key_scales[unit.kv_head];
}
BH_INLINE float ValueScaleOf(const AttentionCall& call, const AttentionUnit& unit) {
  return call.value_scales == nullptr ? 1.0f : call.value_scales[unit.kv_head];
}

BH_INLINE void WriteOut(const float* o, float l, float scale, int value_dim, float* out) {
  for (int c = 0; c < value_dim; c += kLanes) {
    const F32x16 mean = Mul(Div(Load(o + c), Set1(l)), Set1(scale));
    StoreN(out + c, mean, Min(kLanes, value_dim - c));
  }
}

// The rows of a unit, what each sees, and its running result. Lines of `width` floats.
struct UnitRows {
  const AttentionCall& call;
  const AttentionUnit& unit;
  int count;
  int width;           // padded value_dim
  float* o = nullptr;  // [count][width]
  float* l = nullptr;  // [count], as are the others
  float* m = nullptr;
  Range* visible = nullptr;
  Range visible_to_any = {};
  Range visible_to_all = {};

  int TokenOf(int row) const { return unit.first_token + row / unit.num_heads; }
  int HeadOf(int row) const { return unit.first_head + row % unit.num_heads; }
  const float* QueryOf(int row) const {
    return call.q + TokenOf(row) * call.q_stride + HeadOf(row) * call.head_dim;
  }

  void SetVisible() {
    visible_to_any = visible_to_all = VisibleTo(call.position[unit.first_token], call);
    for (int row = 0; row < count; ++row) {
      visible[row] = VisibleTo(call.position[TokenOf(row)], call);
      visible_to_any.begin = Min(visible_to_any.begin, visible[row].begin);
      visible_to_any.end = Max(visible_to_any.end, visible[row].end);
      visible_to_all = Common(visible_to_all, visible[row]);
    }
  }

  // Seen by any of some rows, within the positions `chunk`.
  Range SeenByAny(int first, int rows, Range chunk) const {
    Range seen = visible[first];
    for (int row = first + 1; row < first + rows; ++row) {
      seen = {Min(seen.begin, visible[row].begin), Max(seen.end, visible[row].end)};
    }
    return Common(seen, chunk);
  }

  // Adds a row's result for the chunk at `chunk_begin`, part of which it sees.
  void AddChunk(int row, int chunk_begin, float chunk_m, float chunk_l, const float* chunk_o) {
    const int chunk = chunk_begin / kAttentionChunk;
    float* to = o + int64_t{row} * width;
    float* to_m = m + row;
    float* to_l = l + row;
    if (unit.first_slot >= 0) {
      to = call.slots + AttentionSlot(call, unit, row / unit.num_heads, HeadOf(row), chunk) *
                            AttentionSlotFloats(call.value_dim);
      to_m = to + width;
      to_l = to_m + 1;
    } else if (chunk != visible[row].begin / kAttentionChunk) {
      return Join(chunk_m, chunk_l, chunk_o, to_m, to_l, to, width);
    }
    *to_m = chunk_m;
    *to_l = chunk_l;
    for (int c = 0; c < width; c += kLanes) Store(to + c, Load(chunk_o + c));
  }

  // After the last chunk of a unit that has all chunks of its tile.
  void WriteOutputs() {
    for (int row = 0; row < count; ++row) {
      float* const result = o + int64_t{row} * width;
      const int head = HeadOf(row);
      if (call.sinks != nullptr) JoinSink(call.sinks[head], m[row], l + row, result, width);
      WriteOut(result, l[row], ValueScaleOf(call, unit), call.value_dim,
               call.out + TokenOf(row) * call.out_stride + head * call.value_dim);
    }
  }
};

// Caps a row's scores, which begin at the chunk's begin, and sets those in `vectors` that it does
// not see to -infinity. `seen`: relative to the chunk. Returns the largest score.
BH_INLINE float MaskScores(float* scores, Range vectors, Range seen, float soft_cap) {
  for (int v = vectors.begin; soft_cap != 0.0f && v < vectors.end; ++v) {
    Store(scores + v * kLanes, SoftCap(Load(scores + v * kLanes), soft_cap));
  }
  for (int s = vectors.begin * kLanes; s < seen.begin; ++s) scores[s] = -__builtin_inff();
  for (int s = seen.end; s < vectors.end * kLanes; ++s) scores[s] = -__builtin_inff();
  F32x16 max = Load(scores + vectors.begin * kLanes);
  for (int v = vectors.begin + 1; v < vectors.end; ++v) {
    max = Max(max, Load(scores + v * kLanes));
  }
  return MaxLanes(max);
}

}  // namespace bulkhead::BH_ISA
