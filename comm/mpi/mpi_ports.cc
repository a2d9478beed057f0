#include "comm/mpi/mpi_ports.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/mpi/tcp_ports.h"

namespace bulkhead {
namespace {

// A rank sends its whole handshake at once, right after connecting.
constexpr absl::Duration kPollInterval = absl::Milliseconds(100);
constexpr int kLooks = 5;

}  // namespace

HandshakeWatch::HandshakeWatch() : watched_(gettid()) {
  thread_.emplace(kPollInterval, PeriodicThread::First::kAfterPeriod, [this] { Look(); });
}

HandshakeWatch::~HandshakeWatch() {
  thread_.reset();
  if (closed_ > 1) {
    BH_LOG(kWarning) << "dropped " << closed_ << " connections that sent half a handshake to MPI";
  }
}

// The descriptor that the watched thread blocks on in recv(), if it was accepted from a listening
// port.
std::optional<HandshakeWatch::Wait> HandshakeWatch::CurrentWait() const {
  std::ifstream file(absl::StrCat("/proc/self/task/", watched_, "/syscall"));
  int64_t call = -1;
  Wait wait;
  if (!(file >> call) || call != SYS_recvfrom || !(file >> std::hex >> wait.fd)) {
    return std::nullopt;
  }
  const std::optional<TcpSocket> socket = TcpSocketOf(wait.fd);
  if (!socket.has_value() || socket->listens) return std::nullopt;
  const std::vector<TcpSocket> all = OwnTcpSockets();
  const bool accepted = std::any_of(all.begin(), all.end(), [&](const TcpSocket& other) {
    return other.listens && other.port == socket->port;
  });
  if (!accepted) return std::nullopt;
  wait.remote = socket->remote;
  return wait;
}

void HandshakeWatch::Look() {
  const Wait wait = CurrentWait().value_or(Wait());
  looks_ = wait.fd >= 0 && wait.fd == last_.fd && wait.remote == last_.remote ? looks_ + 1 : 0;
  last_ = wait;
  if (looks_ < kLooks) return;
  looks_ = 0;
  // The descriptor number may be reused by another connection; a copy of it cannot.
  const int copy = fcntl(wait.fd, F_DUPFD_CLOEXEC, 0);
  const std::optional<TcpSocket> socket = TcpSocketOf(copy);
  if (socket.has_value() && socket->remote == wait.remote) {
    shutdown(copy, SHUT_RDWR);
    if (++closed_ == 1) {
      BH_LOG(kWarning) << wait.remote << " connected to MPI's port " << socket->port
                       << " and sent half a handshake: dropped";
    }
  }
  if (copy >= 0) close(copy);
}

namespace {

// Open MPI connects two ranks over every pair of networks they share, each when a message first
// uses it: small messages take turns, and one of this size is spread over all.
constexpr int kRounds = 16;
constexpr size_t kSpreadBytes = 256 * 1024;

// All hosts exchange messages with each other, over each network.
absl::Status ConnectAll(GroupExchange& exchange, absl::Duration timeout) {
  const RankTopology& topology = exchange.topology();
  if (topology.one_host()) return absl::OkStatus();
  const std::string text(topology.local_rank == 0 ? kSpreadBytes : 0, 'x');
  for (int i = 0; i < kRounds; ++i) {
    BH_RETURN_IF_ERROR(exchange.AllGather(text, timeout).status());
  }
  return absl::OkStatus();
}

// The name of this rank's launcher, whose ports the first rank of each host closes.
std::string CloseLauncher(const RankTopology& topology) {
  const Launcher launcher = FindLauncher(getpid());
  if (launcher.pid == 0 || topology.local_rank != 0) return launcher.name;
  const LauncherPorts ports = CloseLauncherPorts(launcher);
  if (!ports.why.ok()) {
    BH_LOG(kWarning) << OpenPortsText(
        absl::StrCat(launcher.name, " (host ", topology.hosts[topology.rank], ", pid ",
                     launcher.pid, ")"),
        ports.open, ports.why);
  }
  return launcher.name;
}

std::string Connection(absl::string_view from, absl::string_view to) {
  return absl::StrCat(from, " ", to);
}

}  // namespace

MpiPorts::MpiPorts() {
  for (const TcpSocket& socket : OwnTcpSockets()) {
    if (socket.listens) inherited_.insert(socket.fd);
  }
}

absl::Status MpiPorts::RejectExternalConnections(GroupExchange& exchange, absl::Duration timeout) {
  BH_RETURN_IF_ERROR(ConnectAll(exchange, timeout));
  std::set<int> ports;
  std::vector<std::string> open;
  absl::Status why;
  for (const TcpSocket& socket : OwnTcpSockets()) {
    if (!socket.listens || inherited_.count(socket.fd) > 0) continue;
    const absl::Status closed = RefuseConnections(socket.fd);
    if (!closed.ok()) {
      open.push_back(absl::StrCat(socket.port));
      why = closed;
      continue;
    }
    CloseWaitingConnections(socket.fd);
    ports.insert(socket.port);
  }
  if (!open.empty()) BH_LOG(kWarning) << OpenPortsText("MPI", open, why);

  // A connection between ranks is known to both ends.
  std::vector<TcpSocket> accepted;
  std::vector<std::string> mine = {CloseLauncher(exchange.topology())};
  for (const TcpSocket& socket : OwnTcpSockets()) {
    if (socket.listens) continue;
    mine.push_back(Connection(socket.local, socket.remote));
    if (ports.count(socket.port) > 0) accepted.push_back(socket);
  }
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                      exchange.AllGather(absl::StrJoin(mine, "\n"), timeout));
  std::set<std::string> known;
  bool mpirun_elsewhere = false;
  bool mpirun_here = false;
  for (const std::string& text : texts) {
    std::vector<std::string> lines = absl::StrSplit(text, '\n');
    const bool daemon = IsDaemon({0, lines[0]});
    (daemon ? mpirun_elsewhere : mpirun_here) |= !lines[0].empty();
    known.insert(lines.begin() + 1, lines.end());
  }
  if (mpirun_elsewhere && !mpirun_here && exchange.topology().coordinator()) {
    BH_LOG(kWarning)
        << "mpirun runs on a host without ranks, so no rank can close its ports to "
           "external connections: start it on a host of the group, or behind a firewall";
  }
  std::vector<std::string> external;
  for (const TcpSocket& socket : accepted) {
    if (known.count(Connection(socket.remote, socket.local)) > 0) continue;
    shutdown(socket.fd, SHUT_RDWR);
    external.push_back(socket.remote);
  }
  if (!external.empty()) {
    BH_LOG(kWarning) << "dropped " << external.size()
                     << " connections to MPI that do not belong to a rank, the first from "
                     << external.front();
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
