// How a command ends: its last line on standard error, and its exit code.
#pragma once

#include "absl/status/status.h"

namespace bulkhead {

// Prints "bulkhead: cause" in one line unless `status` is ok, or a cause was printed already; the
// exit code that it carries. Any thread.
int ExitWith(const absl::Status& status);

// Likewise for a command that runs as one of a group: only the first rank prints, as its launcher
// numbered it, and the others give it half a second to do so.
int ExitRankWith(const absl::Status& status);

// Whether everything that was printed to standard output got there; DATA_LOSS with exit code 1
// otherwise.
absl::Status FlushStandardOutput();

// Whether the launcher numbered this process 0, or there is none.
bool IsFirstRank();

}  // namespace bulkhead
