// What tests of ops with a state need: the arena, and the index of a step without block tables.
#pragma once

#include <limits>
#include <vector>

#include "kernels/backend.h"

namespace bulkhead {

// An arena full of NaNs, as what another sequence has left.
class StateRig {
 public:
  explicit StateRig(const StateGeometry& geometry)
      : geometry_(geometry),
        memory_(geometry.Bytes() / static_cast<int64_t>(sizeof(double)),
                std::numeric_limits<double>::quiet_NaN()) {}
  StateArena arena() { return {geometry_, reinterpret_cast<std::byte*>(memory_.data())}; }

 private:
  StateGeometry geometry_;
  std::vector<double> memory_;
};

struct SequencePart {
  int slot;
  int position;
  int tokens;
};

class SequenceStep {
 public:
  explicit SequenceStep(const std::vector<SequencePart>& parts) {
    for (const SequencePart& part : parts) {
      begin_.push_back(static_cast<int32_t>(position_.size()));
      slot_.push_back(part.slot);
      for (int i = 0; i < part.tokens; ++i) {
        position_.push_back(part.position + i);
        seq_.push_back(static_cast<int32_t>(begin_.size()) - 1);
      }
    }
    begin_.push_back(static_cast<int32_t>(position_.size()));
  }
  StepIndex index() const {
    return {.num_seqs = static_cast<int>(slot_.size()),
            .num_tokens = static_cast<int>(position_.size()),
            .seq_begin = begin_.data(),
            .seq_slot = slot_.data(),
            .position = position_.data(),
            .token_seq = seq_.data()};
  }

 private:
  std::vector<int32_t> begin_, slot_, position_, seq_;
};

}  // namespace bulkhead
