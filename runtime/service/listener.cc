#include "runtime/service/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr int kSpareDescriptors = 24;  // for files, a connection's socket pair, and everything else
constexpr int kPauseMs = 100;

// The kernel assigns the lowest free number, so a number is a lower bound on the descriptors in
// use.
bool ExceedsFdBudget(int fd) {
  rlimit limit;
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         static_cast<rlim_t>(fd) + kSpareDescriptors >= limit.rlim_cur;
}

constexpr int kBacklog = 1024;

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::Status CannotListen(const std::string& where, absl::string_view why) {
  return WithExitCode(absl::UnavailableError(absl::StrCat("cannot listen on ", where, ": ", why)),
                      ExitCode::kCannotBind);
}

absl::StatusOr<AddressList> Resolve(const std::string& host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) return CannotListen(absl::StrCat(host, ":", port), gai_strerror(error));
  return AddressList(found, &freeaddrinfo);
}

std::string WhyNot(int error, const std::string& flag) {
  switch (error) {
    case EADDRINUSE:
      return absl::StrCat("the port is in use; choose another ", flag, ", or 0 for any free one");
    case EACCES:
      return absl::StrCat("ports below 1024 need the right to bind them; choose another ", flag,
                          ", or 0 for any free one");
    case EADDRNOTAVAIL:
      return "this machine does not have the address; choose another --host";
    default:
      return std::strerror(error);
  }
}

// A non-blocking socket listening there, owned by the caller.
absl::StatusOr<int> ListenOn(const ListenAddress& address) {
  BH_ASSIGN_OR_RETURN(const AddressList list, Resolve(address.ip, address.port, AI_NUMERICHOST));
  const int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return CannotListen(address.Text(), std::strerror(errno));
  // Connections of a previous server in TIME_WAIT must not prevent binding; a listening socket
  // must.
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Connections inherit these. A client that vanished silently is found after a minute.
  const int idle_s = 30, interval_s = 10, probes = 3;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  if (list->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(fd, list->ai_addr, list->ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  const absl::Status why = CannotListen(address.Text(), WhyNot(error, address.flag));
  if (error != EADDRNOTAVAIL) return why;
  return WithExitCode(absl::NotFoundError(why.message()), ExitCode::kCannotBind);
}

}  // namespace

std::string ListenAddress::Text() const {
  const bool v6 = absl::StrContains(ip, ':');
  return absl::StrCat(v6 ? "[" : "", ip, v6 ? "]" : "", ":", port);
}

std::string PeerAddress(int fd) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&peer), size, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return absl::StrCat(absl::StrContains(host, ':') ? absl::StrCat("[", host, "]") : host, ":",
                      port);
}

absl::StatusOr<ListenAddress> ResolveListenAddress(const std::string& host, int port) {
  if (port < 0 || port > 65535) {
    return CannotListen(absl::StrCat(host, ":", port), "a port is 0 to 65535");
  }
  BH_ASSIGN_OR_RETURN(const AddressList list, Resolve(host, port, 0));
  const addrinfo* chosen = list.get();
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    if (a->ai_family == AF_INET) {
      chosen = a;
      break;
    }
  }
  ListenAddress out;
  char text[NI_MAXHOST];
  const int error = getnameinfo(chosen->ai_addr, chosen->ai_addrlen, text, sizeof(text), nullptr, 0,
                                NI_NUMERICHOST);
  if (error != 0) return CannotListen(absl::StrCat(host, ":", port), gai_strerror(error));
  out.ip = text;
  out.port = port;
  out.is_loopback = absl::StartsWith(out.ip, "127.") || out.ip == "::1";
  return out;
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const ListenAddress& address) {
  BH_ASSIGN_OR_RETURN(const int listen_fd, ListenOn(address));
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  BH_CHECK(getsockname(listen_fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0);
  const in_port_t port = bound.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                             : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port;
  const int wake_fd = eventfd(0, EFD_CLOEXEC);
  BH_CHECK(wake_fd >= 0);
  return std::unique_ptr<Listener>(new Listener(listen_fd, wake_fd, ntohs(port)));
}

Listener::~Listener() {
  Stop();
  close(wake_fd_);
}

void Listener::Start(OnConnection on_connection) {
  thread_ = std::thread([this, take = std::move(on_connection)] { Loop(take); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    BH_CHECK(write(wake_fd_, &one, sizeof(one)) == sizeof(one));
    thread_.join();
  }
  if (listen_fd_ >= 0) close(std::exchange(listen_fd_, -1));
}

void Listener::Loop(const OnConnection& on_connection) {
  pollfd fds[2] = {{wake_fd_, POLLIN, 0}, {listen_fd_, POLLIN, 0}};
  while (true) {
    if (poll(fds, 2, -1) < 0) continue;  // EINTR
    if (fds[0].revents != 0) return;
    Accept(on_connection);
  }
}

void Listener::Accept(const OnConnection& on_connection) {
  const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0 && !ExceedsFdBudget(fd)) {
    if (!on_connection(fd)) LogFdLimitOnce();
  } else if (fd >= 0) {
    close(fd);
    LogFdLimitOnce();
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    LogFdLimitOnce();
    pollfd wake = {wake_fd_, POLLIN, 0};
    poll(&wake, 1, kPauseMs);  // leave the connection in the backlog; do not spin
  }                            // otherwise the client has already disconnected
}

void Listener::LogFdLimitOnce() {
  if (std::exchange(said_full_, true)) return;
  BH_LOG(kWarning) << "connections are refused: the limit of open files, less " << kSpareDescriptors
                   << " kept in reserve, is reached; close some, or raise ulimit -n";
}

}  // namespace bulkhead
