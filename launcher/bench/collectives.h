// The collectives that `bench comm` measures: the calls of a serving group, with parts whose result
// is known.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/communicator.h"
#include "comm/group.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// The ranks' inputs: integers that add exactly in any order, different in every call.
class MessagePattern {
 public:
  MessagePattern(int rank, int64_t max_elements);
  // The part of this rank in call number `call`: at least max_elements floats.
  const float* Part(int64_t call) const { return own_.data() + OffsetOf(call); }
  static float Value(int rank, int64_t index);
  // Offset of a call's parts in the pattern, on every rank.
  static int64_t OffsetOf(int64_t call);

 private:
  std::vector<float> own_;
};

// One collective of one size. Called by the main thread of every rank.
class MeasuredCollective {
 public:
  virtual ~MeasuredCollective() = default;
  virtual absl::Status Call(int64_t call) = 0;
  // INTERNAL (exit code 70) naming place and values unless the last call, number `call`, gave this
  // rank the expected result.
  virtual absl::Status Check(int64_t call) const = 0;
};

struct CollectiveTools {
  Group& group;
  Communicator& comm;
  const MessagePattern& pattern;
};

// `bytes` of the whole message, a multiple of UnitBytes.
std::unique_ptr<MeasuredCollective> MakeCollective(Collective collective, int64_t bytes,
                                                   const CollectiveTools& tools);
// Messages come in multiples of this.
int64_t UnitBytes(Collective collective, int ranks);

}  // namespace bulkhead
