// Commands of ours as children: a group of ranks under a launcher, or one process alone.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bulkhead {

struct ChildEnd {
  int exit_code = 0;   // 128+n when signal n ended it
  std::string out;     // what it printed
  std::string errors;  // what it said on standard error
};

// Runs `argv`, found in PATH, to its end. The child gets SIGTERM when this process dies. INTERNAL
// when no process can be made; NOT_FOUND (exit code 2) when the program is missing. Must be called
// before the process has threads.
absl::StatusOr<ChildEnd> RunChild(const std::vector<std::string>& argv);

// Ok, or what the child came to: the last lines that it said (of a launcher's
// framed explanation, where there is nothing else, its first paragraph), and its exit code for our
// own where it is one of ours.
absl::Status StatusOfChild(const std::string& what, const ChildEnd& end);

// How a group of ranks is started.
struct LaunchPlan {
  std::string launcher;            // words, as in "mpirun --bind-to none"
  std::vector<std::string> hosts;  // empty: this one
};

// "the group of 4 on hosts a, b", for StatusOfChild.
std::string GroupName(const LaunchPlan& plan, int ranks);

// FAILED_PRECONDITION with exit code 5 in a rank of a group: it cannot start groups.
absl::Status CheckMayLaunch(const char* command);

// The command line of a group of `ranks` that run this program with `args`; of one rank the
// program itself. `cores`: of this host.
std::vector<std::string> GroupCommand(const LaunchPlan& plan, int ranks, int cores,
                                      const std::vector<std::string>& args);

// Runs it to its end and logs the command; like RunChild.
absl::StatusOr<ChildEnd> RunGroup(const LaunchPlan& plan, int ranks,
                                  const std::vector<std::string>& args);

}  // namespace bulkhead
