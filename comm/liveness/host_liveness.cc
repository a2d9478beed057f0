#include "comm/liveness/host_liveness.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/lost_rank.h"
#include "base/status.h"
#include "comm/exchange.h"
#include "comm/liveness/sealed_frames.h"
#include "comm/wait.h"

namespace bulkhead {
namespace {

constexpr char kPhase[] = "liveness between hosts";
constexpr int kKeyBytes = 32;
constexpr absl::Duration kConnectLimit = absl::Seconds(10);
constexpr int64_t kHandshakeNanos = 2'000'000'000;
constexpr int64_t kLastWordNanos = 100'000'000;
constexpr int64_t kNeighboursWordNanos = 400'000'000;
constexpr size_t kMaxUnsentBytes = 64 * 1024;

absl::Status Lost(const std::string& text, const LostRank& rank) {
  return WithLostRank(WithExitCode(absl::UnavailableError(text), ExitCode::kRankLost), rank);
}

absl::Status NotUp(absl::Status status) {
  return WithExitCode(std::move(status), ExitCode::kGroupNotUp);
}

// "key address,port address,port", the key in base64.
std::string TicketText(const std::string& key, const std::vector<ListeningSocket>& listeners) {
  std::string text = absl::Base64Escape(key);
  for (const ListeningSocket& listener : listeners) {
    absl::StrAppend(&text, " ", listener.address, ",", listener.port);
  }
  return text;
}

absl::StatusOr<std::vector<ListeningSocket>> ListenOnAll(const std::string& include) {
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, OwnAddresses(include));
  std::vector<ListeningSocket> listeners;
  absl::Status why;
  for (const std::string& address : addresses) {
    absl::StatusOr<ListeningSocket> listener = ListenOn(address);
    if (listener.ok()) {
      listeners.push_back(*std::move(listener));
    } else {
      why = listener.status();
    }
  }
  if (listeners.empty()) return why;
  return listeners;
}

// "rank 2 (host b, pid 4711)", by rank.
absl::StatusOr<std::vector<std::string>> NamesOf(GroupExchange& exchange, absl::Duration timeout) {
  const RankTopology& topology = exchange.topology();
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> pids,
                      exchange.AllGather(absl::StrCat(getpid()), timeout));
  std::vector<std::string> names;
  for (int rank = 0; rank < topology.size; ++rank) {
    int64_t pid = 0;
    static_cast<void>(absl::SimpleAtoi(pids[rank], &pid));
    names.push_back(topology.NameOf(rank, pid));
  }
  return names;
}

}  // namespace

HostLiveness::Peer::Peer(std::string peer_name, int peer_rank, int peer_node, Socket connected,
                         const std::string& key, bool to_rank0)
    : name(std::move(peer_name)),
      rank(peer_rank),
      node(peer_node),
      socket(std::move(connected)),
      sealer(Mac(key, to_rank0 ? "up" : "down")),
      opener(Mac(key, to_rank0 ? "down" : "up")) {}

absl::StatusOr<std::unique_ptr<HostLiveness>> HostLiveness::Connect(GroupExchange& exchange,
                                                                    const std::string& include,
                                                                    absl::Duration timeout,
                                                                    int64_t (*now_ns)()) {
  const RankTopology& topology = exchange.topology();
  const bool takes_part = topology.rank == 0 || topology.node() != 0;
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesOf(exchange, timeout));
  absl::StatusOr<std::vector<ListeningSocket>> listeners = std::vector<ListeningSocket>();
  if (topology.rank == 0) listeners = ListenOnAll(include);
  BH_RETURN_IF_ERROR(Agree(exchange, kPhase, NotUp(listeners.status()), timeout));
  const std::string key = topology.rank == 0 ? RandomBytes(kKeyBytes) : "";
  BH_ASSIGN_OR_RETURN(
      const std::vector<std::string> tickets,
      exchange.AllGather(topology.rank == 0 ? TicketText(key, *listeners) : "", timeout));
  std::unique_ptr<HostLiveness> host_liveness(takes_part ? new HostLiveness(now_ns) : nullptr);
  const int64_t deadline_ns =
      MonotonicNanos() + absl::ToInt64Nanoseconds(std::min(timeout, kConnectLimit));
  absl::Status accepted;
  absl::Status reached;
  if (topology.rank == 0) {
    accepted = host_liveness->AcceptAll(topology, names, *listeners, key, deadline_ns);
  } else if (takes_part) {
    reached = host_liveness->ReachRank0(names[0], topology.rank, tickets[0], deadline_ns);
  }
  // A rank that failed to reach rank 0 has more details than rank 0.
  BH_RETURN_IF_ERROR(Agree(exchange, kPhase, NotUp(reached), timeout));
  if (accepted.ok() && takes_part) accepted = host_liveness->Watch();
  if (host_liveness != nullptr) {
    const absl::MutexLock lock(&host_liveness->mutex_);
    for (const std::unique_ptr<Peer>& peer : host_liveness->peers_)
      peer->host = topology.hosts[peer->rank];
  }
  BH_RETURN_IF_ERROR(Agree(exchange, kPhase, NotUp(accepted), timeout));
  return host_liveness;
}

HostLiveness::~HostLiveness() {
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

absl::Status HostLiveness::AcceptAll(const RankTopology& topology,
                                     const std::vector<std::string>& names,
                                     const std::vector<ListeningSocket>& listeners,
                                     const std::string& key, int64_t deadline_ns) {
  std::set<int> missing;
  for (int rank = 0; rank < topology.size; ++rank) {
    if (topology.nodes[rank] != 0) missing.insert(rank);
  }
  const absl::MutexLock lock(&mutex_);
  for (Caller& caller : AcceptCallers(listeners, key, missing, deadline_ns)) {
    const int rank = caller.who.rank;
    missing.erase(rank);
    peers_.push_back(std::make_unique<Peer>(names[rank], rank, topology.nodes[rank],
                                            std::move(caller.socket), caller.who.session_key,
                                            /*to_rank0=*/false));
  }
  if (!missing.empty()) {
    std::vector<std::string> absent;
    for (const int rank : missing) absent.push_back(names[rank]);
    return absl::DeadlineExceededError(
        absl::StrCat(absl::StrJoin(absent, ", "), " did not connect to rank 0"));
  }
  std::sort(peers_.begin(), peers_.end(),
            [](const auto& a, const auto& b) { return a->rank < b->rank; });
  return absl::OkStatus();
}

// Tries rank 0's addresses in turn until the deadline; the first one that authenticates with the
// key is used.
absl::Status HostLiveness::ReachRank0(const std::string& name, int rank, const std::string& ticket,
                                      int64_t deadline_ns) {
  const std::vector<std::string> parts = absl::StrSplit(ticket, ' ');
  std::string key;
  BH_CHECK(absl::Base64Unescape(parts[0], &key));
  std::vector<std::string> failures;
  do {
    failures.clear();
    for (size_t i = 1; i < parts.size(); ++i) {
      const std::pair<std::string, std::string> at = absl::StrSplit(parts[i], ',');
      int port = 0;
      if (!absl::SimpleAtoi(at.second, &port)) continue;
      const int64_t limit_ns = std::min(deadline_ns, MonotonicNanos() + kHandshakeNanos);
      absl::StatusOr<Socket> socket = ConnectTo(at.first, port, limit_ns);
      absl::StatusOr<std::string> session = "";
      if (!socket.ok()) {
        session = socket.status();
      } else {
        session = AuthenticateTo(*socket, key, rank, limit_ns);
      }
      if (session.ok()) {
        const absl::MutexLock lock(&mutex_);
        peers_.push_back(
            std::make_unique<Peer>(name, 0, 0, *std::move(socket), *session, /*to_rank0=*/true));
        return absl::OkStatus();
      }
      failures.push_back(absl::StrCat(parts[i], " (", session.status().message(), ")"));
    }
    usleep(100'000);
  } while (MonotonicNanos() < deadline_ns);
  return absl::UnavailableError(absl::StrCat(
      "cannot reach ", name, " at ", absl::StrJoin(failures, ", "),
      "; allow TCP between the hosts, or name the network with OMPI_MCA_btl_tcp_if_include"));
}

absl::Status HostLiveness::Watch() {
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return absl::ResourceExhaustedError("epoll_create1 failed");
  const absl::MutexLock lock(&mutex_);
  for (const std::unique_ptr<Peer>& peer : peers_) {
    epoll_event event = {};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, peer->socket.fd(), &event) != 0) {
      return absl::ResourceExhaustedError("epoll_ctl failed");
    }
  }
  return absl::OkStatus();
}

void HostLiveness::Beat() {
  const absl::MutexLock lock(&mutex_);
  for (const std::unique_ptr<Peer>& peer : peers_) Send(*peer, FrameKind::kBeat, "");
}

void HostLiveness::Rearm() {
  const absl::MutexLock lock(&mutex_);
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (peer->heard_ns != 0) peer->heard_ns = now_ns_();
  }
}

void HostLiveness::Ending() {
  ending_.store(true);
  const absl::MutexLock lock(&mutex_);
  for (const std::unique_ptr<Peer>& peer : peers_) {
    Send(*peer, FrameKind::kEnding, "");
    static_cast<void>(Drain(*peer, now_ns_()));  // as in Abort
  }
}

bool HostLiveness::CoordinatorEnded() {
  const absl::MutexLock lock(&mutex_);
  Peer& first = *peers_.front();
  if (first.rank != 0) return false;
  static_cast<void>(Drain(first, now_ns_()));
  return first.gone;
}

void HostLiveness::Abort(const absl::Status& why) {
  const absl::MutexLock lock(&mutex_);
  if (std::exchange(abort_sent_, true)) return;
  const int64_t until_ns = MonotonicNanos() + kLastWordNanos;
  for (const std::unique_ptr<Peer>& peer : peers_) {
    Send(*peer, FrameKind::kAbort, EncodeStatus(why));
    // Unread data at exit would make the kernel reset the connection and discard our last frame.
    static_cast<void>(Drain(*peer, now_ns_()));
    while (!peer->gone && !peer->unsent.empty() && MonotonicNanos() < until_ns) {
      usleep(1000);
      Flush(*peer);
    }
  }
}

// A peer that does not read gets no more heartbeats: the final frame must still fit.
void HostLiveness::Send(Peer& peer, FrameKind kind, absl::string_view text) {
  if (peer.gone || (kind == FrameKind::kBeat && peer.unsent.size() > kMaxUnsentBytes)) return;
  peer.unsent += peer.sealer.Seal(kind, text);
  Flush(peer);
}

void HostLiveness::Flush(Peer& peer) {
  while (!peer.unsent.empty()) {
    const ssize_t n = send(peer.socket.fd(), peer.unsent.data(), peer.unsent.size(), MSG_NOSIGNAL);
    if (n > 0) {
      peer.unsent.erase(0, n);
    } else if (errno != EINTR) {
      return;  // full or broken; the next read reports it
    }
  }
}

absl::Status HostLiveness::Check(absl::Duration silence) {
  const absl::MutexLock lock(&mutex_);
  if (!lost_.ok()) return lost_;
  const int64_t now_ns = now_ns_();
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (lost_.ok()) lost_ = Drain(*peer, now_ns);
  }
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (lost_.ok()) lost_ = CheckPeer(*peer, now_ns, silence);
  }
  return lost_;
}

// Whether ranks of the same host are still connected and may know why it is gone.
bool HostLiveness::HasNeighbours(const Peer& peer) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const std::unique_ptr<Peer>& other) {
    return other->node == peer.node && !other->gone;
  });
}

absl::Status HostLiveness::CheckPeer(Peer& peer, int64_t now_ns, absl::Duration silence) {
  if (peer.ending || ending_.load()) return absl::OkStatus();
  if (peer.gone) {
    if (HasNeighbours(peer) && now_ns - peer.gone_ns < kNeighboursWordNanos)
      return absl::OkStatus();
    return Lost(
        absl::StrCat(peer.name,
                     " ended without a message: it was killed or crashed, cause not visible from "
                     "here (exit code 137 of the launcher: killed by signal 9)"),
        peer.lost_rank());
  }
  if (peer.heard_ns == 0) return absl::OkStatus();
  if (now_ns - peer.heard_ns <= absl::ToInt64Nanoseconds(silence)) return absl::OkStatus();
  return Silent(peer, now_ns, silence);
}

// If all ranks of a host are silent, the first one is reported for it.
absl::Status HostLiveness::Silent(const Peer& peer, int64_t now_ns, absl::Duration silence) const {
  const Peer* first = nullptr;
  int ranks = 0;
  int silent = 0;
  for (const std::unique_ptr<Peer>& other : peers_) {
    if (other->node != peer.node || other->heard_ns == 0 || other->ending) continue;
    ++ranks;
    if (now_ns - other->heard_ns <= absl::ToInt64Nanoseconds(silence) / 2) continue;
    ++silent;
    if (first == nullptr) first = other.get();
  }
  if (silent < ranks) first = &peer;
  const char* what = ": it, its host or the link between the hosts has stopped";
  if (ranks > 1 && silent == ranks) {
    what = ", as all ranks of its host: that host or the link to it has stopped";
  } else if (ranks > 1) {
    what = ", while others of its host were not";
  }
  const auto seconds = [now_ns](const Peer& of) {
    return absl::StrFormat("%.1f s", static_cast<double>(now_ns - of.heard_ns) * 1e-9);
  };
  std::string who = absl::StrCat(first->name, " was silent for ", seconds(*first));
  if (first != &peer) absl::StrAppend(&who, " and rank ", peer.rank, " for ", seconds(peer));
  return Lost(who + what, first->lost_rank());
}

// Reads all available frames. The peer is removed when its connection ends.
absl::Status HostLiveness::Drain(Peer& peer, int64_t now_ns) {
  char buffer[4096];
  while (!peer.gone) {
    const ssize_t n = recv(peer.socket.fd(), buffer, sizeof(buffer), 0);
    if (n > 0) {
      peer.opener.Feed(absl::string_view(buffer, n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    peer.gone = true;
    peer.gone_ns = now_ns;
    peer.socket.Close();  // also removes it from the epoll set
  }
  absl::Status status;
  Frame frame;
  while (status.ok()) {
    const absl::StatusOr<bool> got = peer.opener.Next(frame);
    if (!got.ok()) {
      status = Lost(absl::StrCat(peer.name, ": ", got.status().message()), peer.lost_rank());
    }
    if (!got.ok() || !*got) break;
    status = Take(peer, frame, now_ns);
  }
  return status;
}

absl::Status HostLiveness::Take(Peer& peer, const Frame& frame, int64_t now_ns) {
  peer.heard_ns = now_ns;
  switch (frame.kind) {
    case FrameKind::kBeat:
      return absl::OkStatus();
    case FrameKind::kEnding:
      peer.ending = true;
      return absl::OkStatus();
    case FrameKind::kAbort:
      break;
  }
  const absl::Status why = DecodeStatus(frame.text);
  return why.ok() || ending_.load() ? absl::OkStatus() : why;
}

}  // namespace bulkhead
