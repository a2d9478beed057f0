// What belongs to one row of attention, a token and a query head: the positions that it sees, and
// how its chunks, and its sink, become one result.
#pragma once

#include "kernels/attend/op.h"
#include "kernels/simd/exp.h"
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

// A chunk's result joins the running one of the same row.
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

// A row's sink, a score without a value, joins behind its chunks.
BH_INLINE void JoinSink(float sink, float m, float* l, float* o, int width) {
  const F32x16 old_m = Set1(m);
  const F32x16 new_m = Max(old_m, Set1(sink));
  const F32x16 a = Exp(Sub(old_m, new_m));
  StoreN(l, Fma(Set1(*l), a, Exp(Sub(Set1(sink), new_m))), 1);
  for (int c = 0; c < width; c += kLanes) Store(o + c, Mul(Load(o + c), a));
}

// What sums of products with the unit's keys are multiplied by, and outputs.
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

}  // namespace bulkhead::BH_ISA
