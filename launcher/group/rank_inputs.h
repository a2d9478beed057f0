// Checks that all ranks of a group have equal inputs, and reports those that differ.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bulkhead/internal/startup.pb.h"
#include "comm/topology.h"
#include "launcher/planning/model_source.h"

namespace bulkhead {

// This rank's program and model. Weights are represented by samples of every tensor, which detects
// a stale copy on one host with few reads. DATA_LOSS (exit code 3) if a file cannot be read.
absl::StatusOr<internal::RankInputs> RankInputsOf(const ModelSource& source);

// `ranks`: by rank. INVALID_ARGUMENT (exit code 5) naming the first field in which ranks differ and
// the ranks that deviate from the majority; rank 0 decides a tie.
absl::Status CompareInputs(const RankTopology& topology,
                           const std::vector<internal::RankInputs>& ranks);

}  // namespace bulkhead
