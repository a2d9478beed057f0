// ClientListener: a front end's source of clients: the listening socket, with or without TLS.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/service/access/access_control.h"
#include "runtime/service/error_counts.h"
#include "runtime/service/listener.h"
#include "runtime/service/tls/tls_context.h"
#include "runtime/service/tls/tls_terminator.h"

namespace bulkhead {

class ClientListener {
 public:
  // `tls` may be null: plain. Errors as of Listener::Bind and ResolveListenAddress.
  static absl::StatusOr<std::unique_ptr<ClientListener>> Bind(
      const std::string& host, int port, const std::string& flag,
      std::shared_ptr<const TlsContext> tls);

  // "HOST:PORT" to connect to, with the bound port.
  const std::string& target() const { return target_; }
  int port() const { return listener_->port(); }

  // Call once. `take` owns the connections that it gets, and returns false for want of descriptors.
  // `max_clients`, `access` and `closed` are the terminator's.
  using Take = std::function<bool(const AcceptedClient& client)>;
  void Start(int max_clients, const AccessControl* access, ErrorCounts* closed, Take take);
  // Accepts no more clients; open connections continue.
  void StopListening() { listener_->Stop(); }
  // Waits until what was sent has reached all clients that read; false after `timeout`.
  bool Flush(absl::Duration timeout);
  // Call once the front end has closed its connections: sends what is left within `grace`.
  void Stop(absl::Duration grace);

 private:
  ClientListener(std::unique_ptr<Listener> listener, std::string target,
                 std::shared_ptr<const TlsContext> tls)
      : tls_(std::move(tls)), target_(std::move(target)), listener_(std::move(listener)) {}

  const std::shared_ptr<const TlsContext> tls_;
  const std::string target_;
  std::unique_ptr<TlsTerminator> terminator_;
  std::unique_ptr<Listener> listener_;  // gives connections to the terminator
};

}  // namespace bulkhead
