// What somebody else needs to tell what happened, as files in one folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/clients/diagnosis.h"

namespace bulkhead {

// Makes `dir` where it is not there. ALREADY_EXISTS when something is in it, PERMISSION_DENIED when
// it cannot be written, with exit code 2. The paths of the files.
absl::StatusOr<std::vector<std::string>> WriteCapture(const std::string& dir,
                                                      const std::string& target,
                                                      const ServerSnapshot& seen,
                                                      const std::string& summary);

}  // namespace bulkhead
