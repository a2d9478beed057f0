// `bench verify --save` and `--against`: one group's answers, to compare with another's.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// A rank of the group that saves or compares its answers; collective. Exit code 1 when one differs.
absl::Status RunVerify(const VerifyOptions& options);

}  // namespace bulkhead
