// GuardedPort: an address at which a gRPC server is reached through a guard: the listener, the
// guard and the way into the server.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/service/guard/connection_guard.h"
#include "runtime/service/tls/client_listener.h"

namespace bulkhead {

class GuardedPort {
 public:
  // Binds; port 0 takes a free one; `tls` may be null. UNAVAILABLE with exit code 7, naming host,
  // port, cause and the flag to change.
  static absl::StatusOr<std::unique_ptr<GuardedPort>> Bind(
      const std::string& host, int port, const std::string& flag = "--port",
      std::shared_ptr<const TlsContext> tls = nullptr);

  // "HOST:PORT" to connect to.
  const std::string& target() const { return listener_->target(); }
  int port() const { return listener_->port(); }

  // Adds the port to a server, with its quotas and the limits that the guard relies on; the
  // services that are not callback services have at most `max_threads`. Then, once the server has
  // started, Start(): clients are accepted. See ConnectionGuard for the arguments.
  void AddTo(grpc::ServerBuilder& builder, const HostQuotas& quotas, int max_threads);
  void Start(const HostQuotas& quotas, HostCounters* counters, ErrorCounts* errors,
             const HostPressure* pressure, const AccessControl* access);
  // Waits until the server's output has reached all clients that read; false after `timeout`.
  bool Flush(absl::Duration timeout);
  // Accepts no more clients, and no more calls of connected ones; waits up to `timeout` for the
  // calls that the server has. Call before the server shuts down, because it would end later calls
  // without a reason.
  void EndCalls(absl::Duration timeout) {
    listener_->StopListening();
    guard_->EndCalls(timeout);
  }
  // Once the server has shut down.
  void Stop(absl::Duration grace);

 private:
  explicit GuardedPort(std::unique_ptr<ClientListener> listener) : listener_(std::move(listener)) {}

  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<ConnectionGuard> guard_;    // gives connections to the acceptor
  std::unique_ptr<ClientListener> listener_;  // gives connections to the guard
};

}  // namespace bulkhead
