// How this process was launched, from its environment.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace bulkhead {

// Looks up a variable; null if unset.
using Environment = std::function<const char*(const char*)>;

struct LaunchEnvironment {
  std::string launcher;   // "mpirun", "srun", "a PMI launcher", or "" without a launcher
  int expected_size = 0;  // number of ranks; 0 if unknown
  bool has_pmix = false;  // a PMIx server is available
  bool one_host = false;  // known to be on a single host
  int local_size = 0;     // ranks on this host; 0 if unknown
  int local_rank = -1;    // index among them; -1 if unknown
  // Open MPI bound this process to a core, or to the cores of a NUMA node, without being asked to.
  bool bound_by_default = false;

  // Whether this process was launched as a rank of a group.
  bool by_launcher() const { return !launcher.empty(); }
};

// Recognises Open MPI's mpirun; PMIx launchers; srun, distinguished from a shell in an allocation
// by a step of more than one task; PMI-1 and PMI-2 launchers. launcher_arguments: from
// LauncherArguments, used only for bound_by_default.
LaunchEnvironment ReadLaunchEnvironment(const Environment& environment,
                                        const std::vector<std::string>& launcher_arguments = {});

// Command line and environment of Open MPI 5's mpirun ("prterun"), which does not pass options on.
// Empty unless it is an ancestor of this process, which it is only on mpirun's own host.
std::vector<std::string> LauncherArguments();

// Overrides unsuitable MPI defaults by environment variables: listening on every interface even on
// a single host, and copying by ptrace, which containers forbid. Variables set by the user are
// kept. Call first in any program that may be a rank: setenv requires a single-threaded process.
void SetMpiEnvironment(const LaunchEnvironment& launch);

// Refuses a launch in which MPI could not connect the ranks: each would come up as a group of one.
// FAILED_PRECONDITION with the right command and ExitCode::kGroupNotUp.
absl::Status CheckCanConnect(const LaunchEnvironment& launch);

// The same check after MPI_Init: MPI came up with `size` ranks.
absl::Status CheckSize(const LaunchEnvironment& launch, int size);

}  // namespace bulkhead
