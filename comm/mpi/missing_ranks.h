// Which ranks are missing in MPI_Init, as visible from this host.
#pragma once

#include <string>

#include "comm/launch_environment.h"

namespace bulkhead {

// Name of a rank's thread while it waits in MPI_Init, visible to the other ranks.
inline constexpr char kInMpiInit[] = "bh-mpi-init";

// "rank 1 (host a, pid 12) is stopped, rank 2 (host a, pid 13) has not reached it", or "" if all
// ranks of this host are in MPI_Init.
std::string MissingRanks(const LaunchEnvironment& launch, const Environment& environment);

}  // namespace bulkhead
