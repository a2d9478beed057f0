// What the environment says about who started this process.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace bulkhead {

// Looks a variable up; null when it is not set.
using Environment = std::function<const char*(const char*)>;

struct LaunchEnvironment {
  std::string launcher;   // "mpirun", "srun", "a PMI launcher", or "" when nothing did
  int expected_size = 0;  // ranks the launcher says there are; 0 when it does not say
  bool has_pmix = false;  // a PMIx server to meet the others through
  bool one_host = false;  // known to be
  int local_size = 0;     // ranks on this host; 0 when the launcher does not say
  int local_rank = -1;    // among them; -1 when the launcher does not say

  // Whether this process is meant to be a rank among others that it must meet.
  bool by_launcher() const { return !launcher.empty(); }
};

// Open MPI's mpirun; a PMIx launcher; srun, told from a mere shell in an allocation by a step of
// more than one task; PMI-1 or PMI-2 launchers.
LaunchEnvironment ReadLaunchEnvironment(const Environment& environment);

// Tells MPI what it would do otherwise, through its own variables: to listen on every interface
// even on one host, and to copy by ptrace, which containers forbid. What the user has set stays.
// First thing in a program that may be a rank: setenv is for processes of one thread.
void SetMpiEnvironment(const LaunchEnvironment& launch);

// Refuses a rank that MPI could not unite with the others: it would come up as a group of one, and
// so would each of them. FAILED_PRECONDITION with the right command and ExitCode::kGroupNotUp.
absl::Status CheckCanMeet(const LaunchEnvironment& launch);

// The same found out afterwards: MPI came up with `size` ranks.
absl::Status CheckSize(const LaunchEnvironment& launch, int size);

}  // namespace bulkhead
