// One sequence's keys and values of one layer, number by number, through its block table.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace bulkhead {

class SequenceCache {
 public:
  SequenceCache(const StepIndex& index, int seq, const KvLayerView& kv)
      : kv_(kv),
        blocks_(index.block_tables + int64_t{index.seq_slot[seq]} * index.block_table_stride) {}

  // Without the scales of an fp8 cache.
  float Key(int head, int position, int i) const;
  float Value(int head, int position, int i) const;
  void Put(int head, int position, const float* key, const float* value) const;  // [d] each

 private:
  enum class Part { kKey, kValue };
  // Where a number is in its head's keys or values; int4: which half of which byte.
  struct Place {
    int64_t element = 0;
    int shift = 0;
  };

  float Get(Part part, int head, int position, int i) const;
  void Put(Part part, int head, int position, const float* numbers) const;
  std::byte* Elements(Part part, int head, int position) const;
  uint16_t* Scaling(Part part, int head, int position) const;  // zero: block_tokens later
  Place PlaceOf(Part part, int position, int i) const;

  const KvLayerView& kv_;
  const int32_t* blocks_;
};

// The first position that a query at `position` sees.
inline int FirstVisible(int position, const AttentionOptions& options) {
  int first = 0;
  if (options.window > 0 && position >= options.window) first = position - options.window + 1;
  if (options.chunk > 0 && position % options.chunk < position - first) {
    first = position - position % options.chunk;
  }
  return first;
}

}  // namespace bulkhead
