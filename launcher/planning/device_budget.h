// What each rank's device offers: what the command line says (--device-memory, --reserve), or what
// was measured on this host.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "launcher/flags/options.h"
#include "memory/capacity.h"

namespace bulkhead {

// The values that `sizes` gives ranks 0 to size - 1. INVALID_ARGUMENT with exit code 2, naming
// `flag`, when a list leaves out a rank or names one that is not there.
absl::StatusOr<std::vector<int64_t>> SizesOfRanks(const RankSizes& sizes, int size,
                                                  absl::string_view flag);

// Of one rank of a group of `size`, of which `local_size` run on this host and share it fairly.
// `num_threads` read its weights.
absl::StatusOr<DeviceBudget> BudgetOf(const EngineOptions& options, int rank, int size,
                                      int local_size, int num_threads);

}  // namespace bulkhead
