// GuardedPort: an address that a gRPC server is reached at, through a guard: the listener, the
// guard and the way into the server.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/service/guard/connection_guard.h"
#include "runtime/service/listener.h"

namespace bulkhead {

class GuardedPort {
 public:
  // Binds; port 0 takes a free one. UNAVAILABLE with exit code 7, naming host, port, cause and the
  // flag to change.
  static absl::StatusOr<std::unique_ptr<GuardedPort>> Bind(const std::string& host, int port,
                                                           const std::string& flag = "--port");

  // "HOST:PORT" to connect to.
  const std::string& target() const { return target_; }
  int port() const { return listener_->port(); }

  // Adds the port to a server, with its quotas and the limits that the guard relies on; the
  // services that are not callback services have at most `max_threads`. Then, once the server has
  // started, Start(): clients are let in. See ConnectionGuard for the arguments.
  void AddTo(grpc::ServerBuilder& builder, const HostQuotas& quotas, int max_threads);
  void Start(const HostQuotas& quotas, HostCounters* counters, ErrorCounts* errors,
             const HostPressure* pressure);
  // See ConnectionGuard::Flush.
  bool Flush(absl::Duration timeout) { return guard_->Flush(timeout); }
  // No client is let in any more; what is connected goes on.
  void StopListening() { listener_->Stop(); }
  // Once the server has shut down.
  void Stop(absl::Duration grace) { guard_->Stop(grace); }

 private:
  GuardedPort(std::unique_ptr<Listener> listener, std::string target)
      : listener_(std::move(listener)), target_(std::move(target)) {}

  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<ConnectionGuard> guard_;  // gives connections to the acceptor
  std::unique_ptr<Listener> listener_;      // and the listener to the guard
  std::string target_;
};

}  // namespace bulkhead
