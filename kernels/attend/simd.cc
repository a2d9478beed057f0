// Attention: compute-bound with many rows; with few, each cached number is read once.
// kernels/attend/reference.cc fixes the order; here rows share loads. Vectors may contain tokens
// that a row does not see: their scores are overwritten, and their values are never multiplied.
#include "kernels/attend/op.h"

#include "kernels/attend/attention_unit.h"
#include "kernels/attend/op.h"

namespace bulkhead::BH_ISA {

void AttendUnit(const AttentionCall& call, const AttentionUnit& unit, float* scratch) {
  switch (call.format) {
    case KvFormat::kF32:
      return UnitRun<F32Cache>(call, unit, scratch).Run();
    case KvFormat::kBF16:
      return UnitRun<Bf16Cache>(call, unit, scratch).Run();
    case KvFormat::kF16:
      return UnitRun<F16Cache>(call, unit, scratch).Run();
    case KvFormat::kInt8:
      return UnitRun<Int8Cache>(call, unit, scratch).Run();
    case KvFormat::kInt4:
      return UnitRun<Int4Cache>(call, unit, scratch).Run();
    case KvFormat::kFP8:
      return UnitRun<Fp8Cache>(call, unit, scratch).Run();
  }
}

void MergeUnit(const AttentionCall& call, const AttentionUnit& unit) {
  const int width = PaddedHeadDim(call.value_dim);
  const int64_t slot_floats = AttentionSlotFloats(call.value_dim);
  for (int token = 0; token < unit.num_tokens; ++token) {
    const Range visible = VisibleTo(call.position[unit.first_token + token], call);
    const int first = visible.begin / kAttentionChunk;
    const int last = (visible.end - 1) / kAttentionChunk;
    for (int head = unit.first_head; head < unit.first_head + unit.num_heads; ++head) {
      // The chunks of a row are adjacent; the first one's slot holds the running state.
      float* o = call.slots + AttentionSlot(call, unit, token, head, first) * slot_floats;
      const float* chunk = o;
      for (int c = first + 1; c <= last; ++c) {
        chunk += slot_floats;
        Join(chunk[width], chunk[width + 1], chunk, o + width, o + width + 1, o, width);
      }
      if (call.sinks != nullptr) JoinSink(call.sinks[head], o[width], o + width + 1, o, width);
      float* out =
          call.out + (unit.first_token + token) * call.out_stride + int64_t{head} * call.value_dim;
      WriteOut(o, o[width + 1], ValueScaleOf(call, unit), call.value_dim, out);
    }
  }
}

}  // namespace bulkhead::BH_ISA
