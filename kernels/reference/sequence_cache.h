// One sequence's keys and values of one layer, element by element, through its block table.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/reference/number_format.h"

namespace bulkhead {

class SequenceCache {
 public:
  SequenceCache(const StepIndex& index, int seq, const KvLayerView& kv)
      : kv_(kv),
        blocks_(index.block_tables + int64_t{index.seq_slot[seq]} * index.block_table_stride) {}

  float Key(int head, int position, int i) const {
    return LoadNumber(kv_.Keys(Block(position), head), Type(), KeyIndex(position, i));
  }
  float Value(int head, int position, int i) const {
    return LoadNumber(kv_.Values(Block(position), head), Type(), ValueIndex(position, i));
  }
  void Put(int head, int position, int i, float key, float value) const {
    StoreNumber(key, kv_.Keys(Block(position), head), Type(), KeyIndex(position, i));
    StoreNumber(value, kv_.Values(Block(position), head), Type(), ValueIndex(position, i));
  }

 private:
  DType Type() const {
    const KvFormat format = kv_.geometry.format;
    return format == KvFormat::kF32    ? DType::kF32
           : format == KvFormat::kBF16 ? DType::kBF16
                                       : DType::kF16;
  }
  int64_t Block(int position) const { return blocks_[position / kv_.geometry.block_tokens]; }
  int64_t KeyIndex(int position, int i) const {
    return int64_t{i} * kv_.geometry.block_tokens + position % kv_.geometry.block_tokens;
  }
  int64_t ValueIndex(int position, int i) const {
    return int64_t{position % kv_.geometry.block_tokens} * kv_.geometry.head_dim + i;
  }

  const KvLayerView& kv_;
  const int32_t* blocks_;
};

// The first position that a query at `position` sees.
inline int FirstVisible(int position, int window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

}  // namespace bulkhead
