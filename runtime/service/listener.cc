#include "runtime/service/listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
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

}  // namespace

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
