// `bench throughput`: how fast a group computes, with no server and no network.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Collective; also alone. The status carries the exit code.
absl::Status RunThroughput(const ThroughputOptions& options);

}  // namespace bulkhead
