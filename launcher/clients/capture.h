// Collects diagnostic data for others as files in one folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/clients/diagnosis.h"

namespace bulkhead {

// A snapshot as JSON; also printed by `doctor --json`.
v1::SetLimitsResponse LimitsOf(const ServerSnapshot& seen);
v1::ModelInfo WithoutConfig(v1::ModelInfo model);

// Creates `dir` if necessary. ALREADY_EXISTS if it is not empty, CannotWrite if it is not writable,
// with exit code 2. Returns the paths of the files.
absl::StatusOr<std::vector<std::string>> WriteCapture(const std::string& dir,
                                                      const std::string& target,
                                                      const ServerSnapshot& seen,
                                                      const std::string& summary);

}  // namespace bulkhead
