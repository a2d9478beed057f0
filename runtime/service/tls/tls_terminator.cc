#include "runtime/service/tls/tls_terminator.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace bulkhead {
namespace {

constexpr int kMaxEvents = 64;
constexpr int kTickMs = 100;
constexpr uint64_t kWakeId = 0;
// The kernel doubles it for its bookkeeping.
constexpr int kPairBytes = 32 << 10;
constexpr int kMinHandshakes = 4;

void SetBuffers(int fd) {
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kPairBytes, sizeof(kPairBytes));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kPairBytes, sizeof(kPairBytes));
}

// OpenSSL writes to sockets without MSG_NOSIGNAL; the signal goes to the thread that writes.
void IgnoreBrokenPipes() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

TlsTerminator::TlsTerminator(std::shared_ptr<const TlsContext> context, int max_clients,
                             const AccessControl* access, ErrorCounts* closed, GiveToFrontEnd give)
    : context_(std::move(context)),
      max_clients_(max_clients),
      access_(access),
      closed_(closed),
      give_(std::move(give)),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  BH_CHECK(epoll_fd_ >= 0 && wake_fd_ >= 0);
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  BH_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event) == 0);
  thread_ = std::thread([this] { Loop(); });
}

TlsTerminator::~TlsTerminator() {
  Stop(absl::ZeroDuration());
  close(epoll_fd_);
  close(wake_fd_);
}

void TlsTerminator::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof(one));
}

void TlsTerminator::Take(int client_fd) {
  const absl::MutexLock lock(&mutex_);
  if (open_ >= MaxTlsConnections(max_clients_) || stop_at_ != absl::InfiniteFuture()) {
    closed_->AddReason("TOO_MANY_CONNECTIONS");
    close(client_fd);
    return;
  }
  ++open_;
  arrivals_.push_back(client_fd);
  Wake();
}

bool TlsTerminator::Flush(absl::Duration timeout) {
  const absl::MutexLock lock(&mutex_);
  flush_wanted_ = true;
  is_flushed_ = false;
  Wake();
  return mutex_.AwaitWithTimeout(absl::Condition(&is_flushed_), timeout);
}

void TlsTerminator::Stop(absl::Duration grace) {
  if (!thread_.joinable()) return;
  {
    const absl::MutexLock lock(&mutex_);
    stop_at_ = MonotonicNow() + grace;
    Wake();
  }
  thread_.join();
  connections_.clear();
  const absl::MutexLock lock(&mutex_);
  for (const int fd : arrivals_) close(fd);
  arrivals_.clear();
}

void TlsTerminator::Loop() {
  IgnoreBrokenPipes();
  absl::Time next_tick = absl::InfinitePast();
  epoll_event events[kMaxEvents];
  while (true) {
    const int count = epoll_wait(epoll_fd_, events, kMaxEvents, kTickMs);
    const absl::Time now = MonotonicNow();
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kWakeId) {
        TakeArrivals(now);
      } else {
        Serve(events[i].data.u64, events[i].events, now);
      }
    }
    if (now >= next_tick) {
      Tick(now);
      next_tick = now + absl::Milliseconds(kTickMs);
    }
    if (AnswerCallers(now)) return;
  }
}

void TlsTerminator::TakeArrivals(absl::Time now) {
  uint64_t count = 0;
  (void)!read(wake_fd_, &count, sizeof(count));
  std::vector<int> arrivals;
  {
    const absl::MutexLock lock(&mutex_);
    arrivals.swap(arrivals_);
  }
  for (const int fd : arrivals) {
    TlsContext::Session session = context_->NewSession(fd);
    const uint64_t id = next_id_++;
    auto connection = std::make_unique<TlsConnection>(std::move(session), fd, PeerAddress(fd), now);
    if (connection->ssl() == nullptr) connection->Close();
    const auto entry = connections_.try_emplace(id, Entry{std::move(connection)}).first;
    handshakes_.insert(id);
    Settle(entry, now);
    const int limit = std::max(MaxTlsHandshakes(max_clients_), kMinHandshakes);
    if (static_cast<int>(handshakes_.size()) <= limit) continue;
    const auto oldest = connections_.find(*handshakes_.begin());
    closed_->AddReason("TLS_TIMEOUT");
    oldest->second.connection->Close();
    Settle(oldest, now);
  }
}

void TlsTerminator::Serve(uint64_t tag, uint32_t events, absl::Time now) {
  const auto found = connections_.find(tag >> 1);
  if (found == connections_.end()) return;
  TlsConnection& connection = *found->second.connection;
  const bool is_inner = (tag & 1) != 0;
  const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if (broken && is_inner) {
    connection.InnerClosed(now);
  } else if (broken && (events & EPOLLIN) == 0) {
    connection.Close();
  } else {
    connection.Move(now);
  }
  Settle(found, now);
}

void TlsTerminator::Settle(Connections::iterator entry, absl::Time now) {
  const uint64_t id = entry->first;
  TlsConnection& connection = *entry->second.connection;
  if (connection.handshake_done() && !connection.is_closed() && connection.inner_fd() < 0) {
    Give(id, connection);
    connection.Move(now);
  }
  if (connection.is_closed()) {
    if (!connection.close_reason().empty()) closed_->AddReason(connection.close_reason());
    handshakes_.erase(id);
    connections_.erase(entry);
    const absl::MutexLock lock(&mutex_);
    --open_;
    return;
  }
  Watch(id << 1, connection.client_fd(), connection.client_events(), &entry->second.client_events);
  if (connection.inner_fd() >= 0) {
    Watch(id << 1 | 1, connection.inner_fd(), connection.inner_events(),
          &entry->second.inner_events);
  }
}

void TlsTerminator::Give(uint64_t id, TlsConnection& connection) {
  handshakes_.erase(id);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
    return connection.Close();  // out of descriptors
  }
  SetBuffers(pair[0]);
  SetBuffers(pair[1]);
  connection.Open(pair[0]);
  const RoleSet roles = access_->RolesOfCertificate(CertificateNames(connection.ssl()));
  give_({.fd = pair[1], .address = connection.address(), .roles = roles});
}

void TlsTerminator::Watch(uint64_t tag, int fd, uint32_t events, uint32_t* known) {
  if (events == *known) return;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = tag;
  const int operation = events == 0 ? EPOLL_CTL_DEL : *known == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  BH_CHECK(epoll_ctl(epoll_fd_, operation, fd, &event) == 0);
  *known = events;
}

void TlsTerminator::Tick(absl::Time now) {
  std::vector<uint64_t> ids;
  ids.reserve(connections_.size());
  for (const auto& [id, entry] : connections_) ids.push_back(id);
  for (const uint64_t id : ids) {
    const auto found = connections_.find(id);
    found->second.connection->Tick(now);
    Settle(found, now);
  }
}

bool TlsTerminator::AnswerCallers(absl::Time now) {
  const absl::MutexLock lock(&mutex_);
  if (stop_at_ != absl::InfiniteFuture()) {
    // Front ends have closed theirs: each ends once its last bytes have reached its client.
    return now >= stop_at_ || connections_.size() == handshakes_.size();
  }
  if (flush_wanted_) {
    is_flushed_ = std::all_of(connections_.begin(), connections_.end(), [](const auto& entry) {
      return entry.second.connection->is_flushed();
    });
    flush_wanted_ = !is_flushed_;
  }
  return false;
}

}  // namespace bulkhead
