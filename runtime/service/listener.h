// Listener: the listening socket and the accept thread. gRPC's own listener stops accepting
// permanently when it runs out of file descriptors once.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "runtime/service/listen_address.h"

namespace bulkhead {

class Listener {
 public:
  // Binds and listens; port 0 picks a free one. UNAVAILABLE with exit code 7, address and cause if
  // it cannot.
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
