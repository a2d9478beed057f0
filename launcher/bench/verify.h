// `bench verify`: whether a group answers as one rank does.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// A rank of the group that saves or compares its answers; collective. Exit code 1 when one differs.
absl::Status RunVerify(const VerifyOptions& options);

// Starts one rank that saves, and then the groups that compare. Refused with exit code 5 in a rank.
absl::Status RunVerifyGroups(const VerifyGroupsOptions& options);

}  // namespace bulkhead
