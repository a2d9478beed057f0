// LauncherPorts: mpirun and its daemons always listen on every interface, and a rank is their child
// process. Once the launch is complete nothing needs to connect to them any more.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace bulkhead {

struct Launcher {
  pid_t pid = 0;     // 0: not found
  std::string name;  // "mpirun", "orted"
};

// The nearest ancestor of process `from` that is an Open MPI launcher.
Launcher FindLauncher(pid_t from);

// Whether it is a daemon started by an mpirun on another host.
bool IsDaemon(const Launcher& launcher);

struct LauncherPorts {
  int closed = 0;
  std::vector<std::string> open;  // ports that remain open, "4711"
  absl::Status why;               // not ok if ports remain open or cannot be read
};

// Closes the launcher's listening TCP ports to new connections, through copies of its descriptors,
// which requires the permissions of a debugger (pidfd_getfd).
LauncherPorts CloseLauncherPorts(const Launcher& launcher);

// The equivalent firewall command for an administrator. `ports` as in LauncherPorts::open.
std::string FirewallLine(const std::vector<std::string>& ports);

}  // namespace bulkhead
