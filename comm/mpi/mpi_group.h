// The group into which mpirun or srun launched this process.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/group.h"

namespace bulkhead {

// Whether this process was launched, or meant to be launched, as a rank. If not, it is a group of
// one and MPI is not used (as a singleton it would fork a daemon). A shell inside a Slurm
// allocation is not a rank.
bool LaunchedAsGroup();

// Collective: all ranks of the launch, each within `timeout`; call SetMpiEnvironment before. MPI is
// initialised on the calling thread, and only that thread may use the group's exchange, bus,
// Connect and Leave. Errors carry ExitCode::kGroupNotUp: UNIMPLEMENTED when a host has more ranks
// than kMaxLocalRanks, FAILED_PRECONDITION when each came up as a group of one or they cannot see
// each other, DEADLINE_EXCEEDED when one is missing. After an error that is not IsAgreed the
// process must exit with that code; the launcher then ends the other ranks.
absl::StatusOr<std::unique_ptr<Group>> NewMpiGroup(absl::Duration timeout);

}  // namespace bulkhead
