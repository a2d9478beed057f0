// TCP sockets as a process holds them: which of its descriptors listen, who is connected through
// them, and how one that listens is closed to newcomers while its owner keeps it open.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace bulkhead {

struct TcpSocket {
  int fd = -1;
  bool listens = false;
  int port = 0;        // the local one
  std::string local;   // "10.1.0.1:1024", "[fd00::1]:1024"
  std::string remote;  // "" where it listens
};

// Null when `fd` is no TCP socket that listens or is connected.
std::optional<TcpSocket> TcpSocketOf(int fd);

// This process's own.
std::vector<TcpSocket> OwnTcpSockets();

// From here on the kernel drops what is sent to the listening socket `fd`, so that nobody can
// connect any more; connections that it has given out stay. For every process that shares it.
absl::Status RefuseConnections(int fd);

// Hangs up on those that are connected to the listening socket `fd` and were not accepted yet.
void CloseWaitingConnections(int fd);

}  // namespace bulkhead
