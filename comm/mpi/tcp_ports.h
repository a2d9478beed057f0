// A process's TCP sockets: which descriptors listen, their peers, and how to close a listening
// socket to new connections while its owner keeps it open. The same for its launcher: mpirun and
// its daemons always listen on every interface, and a rank is their child process. Once the launch
// is complete nothing needs to connect to them any more.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

struct TcpSocket {
  int fd = -1;
  bool listens = false;
  int port = 0;        // local
  std::string local;   // "10.1.0.1:1024", "[fd00::1]:1024"
  std::string remote;  // "" if listening
};

// Null unless `fd` is a listening or connected TCP socket.
std::optional<TcpSocket> TcpSocketOf(int fd);

// The TCP sockets of this process.
std::vector<TcpSocket> OwnTcpSockets();

// The kernel drops packets to the listening socket `fd` from now on, so that nothing can connect;
// accepted connections are not affected. Applies to every process that shares it.
absl::Status RefuseConnections(int fd);

// Closes connections to the listening socket `fd` that were not accepted yet.
void CloseWaitingConnections(int fd);

struct Launcher {
  pid_t pid = 0;     // 0: not found
  std::string name;  // "mpirun", "orted"; for Open MPI 5 kOpenMpi5Launcher, "prted"
};
inline constexpr char kOpenMpi5Launcher[] = "prterun";  // the process name of its mpirun

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

// Advice to an administrator about ports that stay open, with a command that names them. `ports` as
// in LauncherPorts::open.
std::string OpenPortsText(absl::string_view whose, const std::vector<std::string>& ports,
                          const absl::Status& why);

}  // namespace bulkhead
