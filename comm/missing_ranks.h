// Who is missing where all ranks should meet in MPI_Init, as far as one can see from this host.
#pragma once

#include <string>

#include "comm/launch_environment.h"

namespace bulkhead {

// What a rank calls the thread that waits beside MPI_Init, for its neighbours to see.
inline constexpr char kInMpiInit[] = "bh-mpi-init";

// "rank 1 (host a, pid 12) is stopped, rank 2 (host a, pid 13) has not come to it", or "" when all
// ranks of this host are in MPI_Init.
std::string MissingRanks(const LaunchEnvironment& launch, const Environment& environment);

}  // namespace bulkhead
