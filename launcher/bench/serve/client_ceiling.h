// The maximum rates at which this client can send and receive.
#pragma once

#include "absl/status/statusor.h"

namespace bulkhead {

// Measured against a null server in this process, which also uses the machine: a lower bound.
struct ClientCeiling {
  double requests_per_s = 0;  // requests of one token
  double tokens_per_s = 0;    // one message each
};
absl::StatusOr<ClientCeiling> MeasureCeiling(int threads);

}  // namespace bulkhead
