// `bench throughput`: how fast a group computes, without server and network.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Collective, or in a group of one. The status carries the exit code.
absl::Status RunThroughput(const ThroughputOptions& options);

}  // namespace bulkhead
