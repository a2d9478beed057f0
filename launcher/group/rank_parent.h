// The parent process of a rank that serves alone, in the role of a launcher: forwards signals, and
// reports how the rank ended if the rank could not.
#pragma once

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Forks and returns in the child, the rank, with the parent's pid. The parent waits here, and exits
// with the child's code, or 128+n if signal n killed it. Returns 0 at once without forking below a
// launcher, or with --no-parent. The parent kills a child that is stopped for 3 s (exit code 6).
// The child gets SIGCONT, which it has blocked, when its parent dies. RESOURCE_EXHAUSTED (exit code
// 5) if fork fails. Must be called before the process has threads.
absl::StatusOr<pid_t> ForkUnderParent(const ServeOptions& options);

}  // namespace bulkhead
