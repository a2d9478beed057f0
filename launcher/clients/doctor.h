// `bulkhead doctor`: reports what limits a group's memory, and the one setting to change first.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// The status carries exit code 1 (no server, or no answer) or 2.
absl::Status RunDoctor(const DoctorOptions& options);

}  // namespace bulkhead
