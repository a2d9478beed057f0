// How much this client can send and receive at all.
#pragma once

#include "absl/status/statusor.h"

namespace bulkhead {

// Against a null server in this process, which takes its own part of the machine: a lower bound.
struct ClientCeiling {
  double requests_per_s = 0;  // of one token each
  double tokens_per_s = 0;    // one message each
};
absl::StatusOr<ClientCeiling> MeasureCeiling(int threads);

}  // namespace bulkhead
