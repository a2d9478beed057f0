// The end of a command: its last line on standard error, and its exit code.
#pragma once

#include "absl/status/status.h"

namespace bulkhead {

// Prints "bulkhead: cause" in one line unless `status` is ok or a cause was already printed;
// returns its exit code. Any thread.
int ExitWith(const absl::Status& status);

// The same for a rank of a group: only the first rank (by the launcher's numbering) prints, and the
// others give it half a second to do so.
int ExitRankWith(const absl::Status& status);

// Whether all output to standard output was written; otherwise DATA_LOSS with exit code 1.
absl::Status FlushStandardOutput();

// Whether this process is the launcher's rank 0, or was not launched.
bool IsFirstRank();

}  // namespace bulkhead
