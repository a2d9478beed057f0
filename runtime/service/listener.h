// Listener: the listening socket and the accept thread. gRPC's own listener stops accepting
// permanently when it runs out of file descriptors once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/service/access/roles.h"

namespace bulkhead {

// A single numeric address, so that a name with several addresses is never bound to only some of
// them.
struct ListenAddress {
  std::string ip;  // "127.0.0.1", "::1"
  int port = 0;    // 0: any free port
  bool is_loopback = false;
  std::string flag = "--port";  // the flag that set the port, for error messages

  std::string Text() const;  // "127.0.0.1:50051", "[::1]:50051"
};

// A client's connection, which does not block; whoever takes one owns it.
struct AcceptedClient {
  int fd = -1;
  std::string address;      // "HOST:PORT"
  RoleSet roles = kNoRole;  // roles of its certificate
};

// "HOST:PORT" of the other end; "unknown".
std::string PeerAddress(int fd);

// IPv4 before IPv6. Errors carry exit code 7 and name host, port and cause.
absl::StatusOr<ListenAddress> ResolveListenAddress(const std::string& host, int port);

class Listener {
 public:
  // Binds and listens; port 0 picks a free one. UNAVAILABLE with exit code 7, address and cause if
  // it cannot; NOT_FOUND with the same where this machine lacks the address.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const ListenAddress& address);
  ~Listener();  // calls Stop() if necessary
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }

  // Takes ownership of a connection's non-blocking descriptor. False if out of descriptors.
  using OnConnection = std::function<bool(int fd)>;
  // Call once. Connections that would use the process's last descriptors are closed at once.
  void Start(OnConnection on_connection);
  // No connections are accepted or passed on afterwards. Must not be called from OnConnection.
  void Stop();

 private:
  Listener(int listen_fd, int wake_fd, int port)
      : listen_fd_(listen_fd), wake_fd_(wake_fd), port_(port) {}
  void Loop(const OnConnection& on_connection);
  void Accept(const OnConnection& on_connection);
  void LogFdLimitOnce();

  int listen_fd_;
  const int wake_fd_;
  const int port_;
  bool said_full_ = false;
  std::thread thread_;
};

}  // namespace bulkhead
