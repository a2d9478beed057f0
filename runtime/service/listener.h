// Listener: the socket that clients connect to, and the thread that accepts them. gRPC's own stops
// accepting for good at the first connection for which there is no file descriptor left.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "runtime/service/listen_address.h"

namespace bulkhead {

class Listener {
 public:
  // Binds and listens; port 0 takes a free one. UNAVAILABLE with exit code 7, naming address and
  // cause, when it cannot.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const ListenAddress& address);
  ~Listener();  // Stop() if need be
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }

  // Takes a connection's descriptor, which does not block, and owns it. False for want of
  // descriptors.
  using OnConnection = std::function<bool(int fd)>;
  // Once. Connections that would take the last descriptors of the process are closed at once.
  void Start(OnConnection on_connection);
  // No connection is given out any more, and none is made. Not from OnConnection.
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
