#include "comm/tcp_ports.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

int OptionOf(int fd, int name) {
  int value = -1;
  socklen_t length = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

struct End {
  std::string text;
  int port = 0;
};

// IPv4 addresses are written as IPv4 even for dual-stack sockets.
End EndOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return {absl::StrCat(text, ":", ntohs(v4.sin_port)), ntohs(v4.sin_port)};
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
    return {absl::StrCat(text, ":", ntohs(v6.sin6_port)), ntohs(v6.sin6_port)};
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return {absl::StrCat("[", text, "]:", ntohs(v6.sin6_port)), ntohs(v6.sin6_port)};
}

}  // namespace

std::optional<TcpSocket> TcpSocketOf(int fd) {
  const int family = OptionOf(fd, SO_DOMAIN);
  if ((family != AF_INET && family != AF_INET6) || OptionOf(fd, SO_PROTOCOL) != IPPROTO_TCP) {
    return std::nullopt;
  }
  TcpSocket found;
  found.fd = fd;
  found.listens = OptionOf(fd, SO_ACCEPTCONN) == 1;
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return std::nullopt;
  const End local = EndOf(address);
  found.local = local.text;
  found.port = local.port;
  if (found.listens) return found;
  length = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return std::nullopt;
  found.remote = EndOf(address).text;
  return found;
}

std::vector<TcpSocket> OwnTcpSockets() {
  std::vector<TcpSocket> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error)) {
    int fd = -1;
    if (!absl::SimpleAtoi(at->path().filename().string(), &fd)) continue;
    if (std::optional<TcpSocket> socket = TcpSocketOf(fd)) found.push_back(*std::move(socket));
  }
  return found;
}

absl::Status RefuseConnections(int fd) {
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);  // accept 0 bytes of every packet: drop it
  const sock_fprog program = {1, &nothing};
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("SO_ATTACH_FILTER: ", std::strerror(errno)));
}

void CloseWaitingConnections(int fd) {
  pollfd waiting = {fd, POLLIN, 0};
  while (poll(&waiting, 1, 0) == 1) {
    const int accepted = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (accepted < 0) return;
    close(accepted);
  }
}

}  // namespace bulkhead
