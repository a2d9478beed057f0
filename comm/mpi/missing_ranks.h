// Which ranks are missing in a collective call of MPI, as visible from this host.
#pragma once

#include <string>

#include "comm/launch_environment.h"

namespace bulkhead {

// Names of a rank's thread while it waits in such a call, visible to the other ranks; 15 bytes at
// most.
inline constexpr char kInMpiInit[] = "bh-mpi-init";
inline constexpr char kInMpiFinalize[] = "bh-mpi-finalize";

// "rank 1 (host a, pid 12) is stopped, rank 2 (host a, pid 13) has not reached it", or "" if all
// ranks of this host are in the call.
std::string MissingRanks(const LaunchEnvironment& launch, const std::string& call_name,
                         const Environment& environment);

}  // namespace bulkhead
