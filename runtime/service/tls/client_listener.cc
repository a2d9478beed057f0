#include "runtime/service/tls/client_listener.h"

#include <utility>

#include "base/status.h"

namespace bulkhead {

absl::StatusOr<std::unique_ptr<ClientListener>> ClientListener::Bind(
    const std::string& host, int port, const std::string& flag,
    std::shared_ptr<const TlsContext> tls) {
  BH_ASSIGN_OR_RETURN(ListenAddress address, ResolveListenAddress(host, port));
  address.flag = flag;
  BH_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Listener::Bind(address));
  address.port = listener->port();
  return std::unique_ptr<ClientListener>(
      new ClientListener(std::move(listener), address.Text(), std::move(tls)));
}

void ClientListener::Start(int max_clients, const AccessControl* access, ErrorCounts* closed,
                           Take take) {
  if (tls_ == nullptr) {
    return listener_->Start(
        [take = std::move(take)](int fd) { return take({.fd = fd, .address = PeerAddress(fd)}); });
  }
  terminator_ = std::make_unique<TlsTerminator>(tls_, max_clients, access, closed, std::move(take));
  listener_->Start([terminator = terminator_.get()](int fd) {
    terminator->Take(fd);
    return true;
  });
}

bool ClientListener::Flush(absl::Duration timeout) {
  return terminator_ == nullptr || terminator_->Flush(timeout);
}

void ClientListener::Stop(absl::Duration grace) {
  listener_->Stop();
  if (terminator_ != nullptr) terminator_->Stop(grace);
}

}  // namespace bulkhead
