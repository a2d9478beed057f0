// The process above a rank that serves alone, as a launcher is above the ranks of a group: it
// passes signals on, and says how the rank ended when the rank could not.
#pragma once

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Splits this process in two and returns in the child, the rank, with the parent's pid. The parent
// waits in here, and exits with the child's code, or 128+n where signal n ended it. Returns 0 at
// once where there is to be none: below a launcher, or with --no-parent. The child gets SIGTERM
// when its parent dies. RESOURCE_EXHAUSTED (exit code 5) when no process can be made. Must be
// called before the process has threads.
absl::StatusOr<pid_t> BecomeChildOfParent(const ServeOptions& options);

}  // namespace bulkhead
