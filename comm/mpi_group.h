// The group that mpirun or srun started this process into.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/group.h"

namespace bulkhead {

// Whether a launcher started this process as a rank, or meant to. Otherwise it is a group of one,
// and MPI stays untouched (initialised alone, it would fork a daemon). A shell inside a Slurm
// allocation is no rank.
bool LaunchedAsGroup();

// Collective: all ranks of the launch, each within `timeout`; SetMpiEnvironment was called. MPI is
// initialised on the calling thread, and only that thread may use the group's exchange, bus,
// Connect and Leave. Errors carry ExitCode::kGroupNotUp: UNIMPLEMENTED when ranks are on several
// hosts, FAILED_PRECONDITION when they came up each for itself or do not see each other,
// DEADLINE_EXCEEDED when one is missing. After an error that is not IsAgreed the process must end
// with that code; the launcher then ends the other ranks.
absl::StatusOr<std::unique_ptr<Group>> NewMpiGroup(absl::Duration timeout);

}  // namespace bulkhead
