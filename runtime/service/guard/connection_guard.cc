#include "runtime/service/guard/connection_guard.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace bulkhead {
namespace {

constexpr int kMaxEvents = 64;
constexpr int kTickMs = 100;
// gRPC needs more memory for a call while ending it than before.
constexpr int kMaxEndsPerTick = 200;
constexpr int kRetryMs = 10;  // retry interval while a connection waits for room
constexpr absl::Duration kLogInterval = absl::Minutes(1);
// When seven eighths of the connections are taken, those without a call are closed after this long.
constexpr absl::Duration kIdleTime = absl::Seconds(2);
constexpr uint64_t kWakeId = 0;
// The kernel doubles them for its bookkeeping. Enough for any one frame, and an upper bound on the
// bytes in flight on a connection.
constexpr int kSocketBytes = 64 << 10;
constexpr int kPairBytes = 32 << 10;

void SetBuffers(int fd, int bytes) {
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

// The name of the guard's end is what the server sees as its peer: the client's address after a
// number that makes it unique. It does not listen, so no process can connect to it.
void NameAfterClient(int fd, uint64_t number, const std::string& client) {
  const std::string name = absl::StrCat("bulkhead-", getpid(), "-", number, ",", client);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);  // after a 0: not in the file system
  bind(fd, reinterpret_cast<sockaddr*>(&address),
       static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes));
}

}  // namespace

std::string ClientAddress(const std::string& grpc_peer) {
  const size_t comma = grpc_peer.find_first_of(",%");
  if (!absl::StartsWith(grpc_peer, "unix-abstract:") || comma == std::string::npos) {
    return grpc_peer;
  }
  std::string address;
  for (size_t i = comma; i < grpc_peer.size(); ++i) {
    uint32_t byte = 0;
    if (grpc_peer[i] == '%' && absl::SimpleHexAtoi(grpc_peer.substr(i + 1, 2), &byte)) {
      address.push_back(static_cast<char>(byte));
      i += 2;
    } else {
      address.push_back(grpc_peer[i]);
    }
  }
  return address.substr(1);
}

ConnectionGuard::ConnectionGuard(const HostQuotas& quotas, HostCounters* counters,
                                 ErrorCounts* errors, const HostPressure* pressure,
                                 const AccessControl* access, GiveToServer give)
    : totals_(quotas, counters, errors, access),
      pressure_(pressure),
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

ConnectionGuard::~ConnectionGuard() {
  Stop(absl::ZeroDuration());
  close(epoll_fd_);
  close(wake_fd_);
}

void ConnectionGuard::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof(one));
}

bool ConnectionGuard::Take(const AcceptedClient& client) {
  const bool refused =
      totals_.counters->connections.now() >= totals_.quotas.max_connections ||
      (pressure_ != nullptr && pressure_->percent() >= HostPressure::kRefuseConnections);
  int pair[2];
  if (refused || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
    if (refused) totals_.counters->closed.AddReason("TOO_MANY_CONNECTIONS");
    close(client.fd);
    return refused;
  }
  SetBuffers(client.fd, kSocketBytes);
  SetBuffers(pair[0], kPairBytes);
  SetBuffers(pair[1], kPairBytes);
  NameAfterClient(pair[0], ++last_name_, client.address);
  totals_.counters->connections.Add(1);
  auto connection = std::make_unique<GuardedConnection>(client.fd, pair[0], &totals_,
                                                        MonotonicNow(), client.roles);
  give_(pair[1]);
  const absl::MutexLock lock(&mutex_);
  arrivals_.push_back(std::move(connection));
  Wake();
  return true;
}

bool ConnectionGuard::Flush(absl::Duration timeout) {
  const absl::MutexLock lock(&mutex_);
  ++flushes_wanted_;
  is_flushed_ = false;
  Wake();
  const bool flushed = mutex_.AwaitWithTimeout(absl::Condition(&is_flushed_), timeout);
  --flushes_wanted_;
  return flushed;
}

bool ConnectionGuard::EndCalls(absl::Duration timeout) {
  const absl::MutexLock lock(&mutex_);
  ends_calls_ = true;
  Wake();
  return mutex_.AwaitWithTimeout(absl::Condition(&has_no_calls_), timeout);
}

void ConnectionGuard::Stop(absl::Duration grace) {
  if (!thread_.joinable()) return;
  {
    const absl::MutexLock lock(&mutex_);
    stop_at_ = MonotonicNow() + grace;
    Wake();
  }
  thread_.join();
  const absl::Time now = MonotonicNow();
  for (auto& [id, guarded] : connections_) guarded.connection->DropClient(now);
  totals_.counters->connections.Sub(static_cast<int64_t>(connections_.size()));
  connections_.clear();
}

void ConnectionGuard::Loop() {
  absl::Time next_tick = absl::InfinitePast();
  epoll_event events[kMaxEvents];
  while (true) {
    const int count =
        epoll_wait(epoll_fd_, events, kMaxEvents, waiting_.empty() ? kTickMs : kRetryMs);
    const absl::Time now = MonotonicNow();
    for (int i = 0; i < count; ++i) {
      const uint64_t tag = events[i].data.u64;
      if (tag == kWakeId) {
        TakeArrivals(now);
      } else {
        Serve(tag >> 1, (tag & 1) == 0, events[i].events, now);
      }
    }
    totals_.ReturnSlots(now);
    const std::vector<uint64_t> retried(waiting_.begin(), waiting_.end());
    for (const uint64_t id : retried) Serve(id, true, 0, now);
    if (now >= next_tick) {
      Tick(now);
      next_tick = now + absl::Milliseconds(kTickMs);
    }
    if (AnswerCallers(now)) return;
  }
}

void ConnectionGuard::TakeArrivals(absl::Time now) {
  uint64_t count = 0;
  (void)!read(wake_fd_, &count, sizeof(count));
  std::vector<std::unique_ptr<GuardedConnection>> arrivals;
  const bool was_stopping = totals_.is_stopping;
  {
    const absl::MutexLock lock(&mutex_);
    arrivals.swap(arrivals_);
    totals_.is_stopping = ends_calls_;
  }
  for (auto& connection : arrivals) {
    Settle(connections_.try_emplace(next_id_++, Guarded{std::move(connection)}).first, now);
  }
  if (totals_.is_stopping && !was_stopping) Tick(now);  // ends the calls that are held
}

void ConnectionGuard::Serve(uint64_t id, bool from_client, uint32_t events, absl::Time now) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  GuardedConnection& connection = *found->second.connection;
  const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if (!from_client) {
    if ((events & EPOLLIN) != 0 || broken) connection.MoveToClient(now);
    if ((events & EPOLLOUT) != 0) connection.MoveToServer(now);
  } else if (broken && (events & EPOLLIN) == 0) {
    connection.DropClient(now);
  } else {
    if ((events & EPOLLOUT) != 0) connection.MoveToClient(now);
    if ((events & EPOLLIN) != 0 || events == 0) connection.MoveToServer(now);
  }
  Settle(found, now);
}

void ConnectionGuard::Settle(Connections::iterator guarded, absl::Time now) {
  const uint64_t id = guarded->first;
  GuardedConnection& connection = *guarded->second.connection;
  if (connection.has_ended()) {
    connection.DropClient(now);
    waiting_.erase(id);
    connections_.erase(guarded);
    totals_.counters->connections.Sub(1);
    return;
  }
  if (connection.is_waiting()) {
    waiting_.insert(id);
  } else {
    waiting_.erase(id);
  }
  if (connection.client_fd() >= 0) {
    Watch(id << 1, connection.client_fd(), connection.client_events(),
          &guarded->second.client_events);
  }
  Watch(id << 1 | 1, connection.server_fd(), connection.server_events(),
        &guarded->second.server_events);
}

void ConnectionGuard::Watch(uint64_t tag, int fd, uint32_t events, uint32_t* known) {
  if (events == *known) return;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = tag;
  // A descriptor registered for no events would still report EPOLLHUP at every wait.
  const int operation = events == 0 ? EPOLL_CTL_DEL : *known == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  BH_CHECK(epoll_ctl(epoll_fd_, operation, fd, &event) == 0);
  *known = events;
}

void ConnectionGuard::Tick(absl::Time now) {
  const int percent = pressure_ == nullptr ? 0 : pressure_->percent();
  totals_.refuses_calls = percent >= HostPressure::kRefuseConnections;
  totals_.ends_left = kMaxEndsPerTick;
  const uint64_t refused_claims = totals_.counters->refused_claims;
  std::vector<uint64_t> ids;
  ids.reserve(connections_.size());
  for (const auto& [id, guarded] : connections_) ids.push_back(id);
  for (const uint64_t id : ids) {
    const auto found = connections_.find(id);
    found->second.connection->Tick(now);
    Settle(found, now);
  }
  totals_.seen_refusals = refused_claims;
  CloseIdle(now);
  if (percent >= HostPressure::kCloseConnections) CloseLargest(now);
  LogClosed(now);
}

void ConnectionGuard::CloseIdle(absl::Time now) {
  const int limit = totals_.quotas.max_connections;
  int surplus = static_cast<int>(connections_.size()) - (limit - limit / 8);
  if (surplus <= 0) return;
  std::vector<std::pair<absl::Time, uint64_t>> idle;
  for (const auto& [id, guarded] : connections_) {
    const GuardedConnection& connection = *guarded.connection;
    if (connection.client_fd() >= 0 && connection.rules().is_idle() &&
        now - connection.last_active() > kIdleTime) {
      idle.emplace_back(connection.last_active(), id);
    }
  }
  std::sort(idle.begin(), idle.end());
  for (const auto& [since, id] : idle) {
    if (surplus-- <= 0) break;
    const auto found = connections_.find(id);
    found->second.connection->Close("IDLE", now);
    Settle(found, now);
  }
}

void ConnectionGuard::CloseLargest(absl::Time now) {
  auto largest = connections_.end();
  int64_t most_bytes = 0;
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (it->second.connection->client_fd() < 0) continue;
    const int64_t bytes = it->second.connection->rules().unaccounted_bytes();
    if (bytes <= most_bytes) continue;
    most_bytes = bytes;
    largest = it;
  }
  if (largest == connections_.end()) return;
  largest->second.connection->Close("OVERLOADED", now);
  Settle(largest, now);
}

void ConnectionGuard::LogClosed(absl::Time now) {
  if (now < next_log_) return;
  std::map<std::string, uint64_t> closed = totals_.counters->closed.Get();
  std::string text;
  for (const auto& [reason, count] : closed) {
    const uint64_t more = count - logged_closed_[reason];
    if (more > 0) absl::StrAppend(&text, text.empty() ? "" : ", ", reason, " ", more);
  }
  logged_closed_ = std::move(closed);
  if (text.empty()) return;
  next_log_ = now + kLogInterval;
  BH_LOG(kWarning) << "clients' connections were closed: " << text << "; "
                   << totals_.counters->connections.now() << " of at most "
                   << totals_.quotas.max_connections << " are open";
}

bool ConnectionGuard::AnswerCallers(absl::Time now) {
  const absl::MutexLock lock(&mutex_);
  if (stop_at_ != absl::InfiniteFuture()) {
    return now >= stop_at_ || (connections_.empty() && arrivals_.empty());
  }
  has_no_calls_ = totals_.is_stopping && arrivals_.empty() &&
                  std::all_of(connections_.begin(), connections_.end(), [](const auto& entry) {
                    return entry.second.connection->rules().is_idle();
                  });
  if (flushes_wanted_ == 0 || is_flushed_ || !arrivals_.empty()) return false;
  is_flushed_ = std::all_of(connections_.begin(), connections_.end(), [](const auto& entry) {
    return entry.second.connection->is_flushed();
  });
  return false;
}

}  // namespace bulkhead
