// LauncherPorts: mpirun and its daemons listen on every interface, whatever they are told, and a
// rank is a child of theirs. Once the launch is complete nobody has to connect to them any more.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace bulkhead {

struct Launcher {
  pid_t pid = 0;     // 0: none is known by its name
  std::string name;  // "mpirun", "orted"
};

// The nearest ancestor of process `from` that is a launcher of Open MPI's.
Launcher FindLauncher(pid_t from);

// Whether it is a daemon that mpirun started on this host, mpirun being elsewhere.
bool IsDaemon(const Launcher& launcher);

struct LauncherPorts {
  int closed = 0;
  std::vector<std::string> open;  // ports that stay open, "4711"
  absl::Status why;               // not ok when ports stay open, or cannot be read
};

// Closes every TCP port that the launcher listens on to newcomers, through a copy of its
// descriptors: for which the kernel asks what it asks of a debugger (pidfd_getfd).
LauncherPorts CloseLauncherPorts(const Launcher& launcher);

// What an administrator can type to the same end. `ports` as in LauncherPorts::open.
std::string FirewallLine(const std::vector<std::string>& ports);

}  // namespace bulkhead
