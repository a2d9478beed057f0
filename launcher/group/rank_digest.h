// What must be equal on all ranks of a group, and who differs when it is not.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/topology.h"
#include "launcher/flags/options.h"
#include "launcher/planning/model_source.h"

namespace bulkhead {

// This rank's program, model and flags as "key=value" lines: every flag but those in which hosts
// may differ (the model's folder, cores, memory). The weights are known by samples of
// every tensor, so that a stale copy on one host is noticed and little is read. DATA_LOSS (exit
// code 3) when a file cannot be read.
absl::StatusOr<std::string> RankDigest(const EngineOptions& options, const ModelSource& source);

// INVALID_ARGUMENT (exit code 5) naming the first key on which ranks differ and who has what most
// others have not; rank 0 is right when it is even.
absl::Status CompareDigests(const RankTopology& topology, const std::vector<std::string>& digests);

}  // namespace bulkhead
