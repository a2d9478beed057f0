// A process's TCP sockets: which descriptors listen, their peers, and how to close a listening
// socket to new connections while its owner keeps it open.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

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

// Of this process.
std::vector<TcpSocket> OwnTcpSockets();

// The kernel drops packets to the listening socket `fd` from now on, so that nothing can connect;
// accepted connections are not affected. Applies to every process that shares it.
absl::Status RefuseConnections(int fd);

// Closes connections to the listening socket `fd` that were not accepted yet.
void CloseWaitingConnections(int fd);

}  // namespace bulkhead
