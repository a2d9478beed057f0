#include "base/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
namespace {

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// True if it became ready before the deadline.
bool Await(int fd, short events, int64_t deadline_ns) {
  constexpr int64_t kNanosPerMilli = 1'000'000;
  while (true) {
    const int64_t left_ns = deadline_ns - MonotonicNanos();
    if (left_ns <= 0) return false;
    pollfd watched = {fd, events, 0};
    const int ready = poll(&watched, 1, static_cast<int>(left_ns / kNanosPerMilli + 1));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

// "" if other hosts cannot use it.
std::string AddressOf(const ifaddrs& interface) {
  if (interface.ifa_addr == nullptr) return "";
  const int family = interface.ifa_addr->sa_family;
  socklen_t length = 0;
  if (family == AF_INET) length = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    length = sizeof(sockaddr_in6);
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(interface.ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return "";
  }
  char text[NI_MAXHOST] = {};
  if (length == 0 || getnameinfo(interface.ifa_addr, length, text, sizeof(text), nullptr, 0,
                                 NI_NUMERICHOST) != 0) {
    return "";
  }
  return text;
}

// `entry`: an interface name, or an IPv4 network such as "10.1.0.0/16".
bool Includes(absl::string_view entry, absl::string_view name, const std::string& address) {
  const std::pair<std::string, std::string> network =
      absl::StrSplit(entry, absl::MaxSplits('/', 1));
  in_addr wanted;
  in_addr own;
  int bits = 0;
  if (!absl::SimpleAtoi(network.second, &bits) || bits < 0 || bits > 32) return entry == name;
  if (inet_pton(AF_INET, network.first.c_str(), &wanted) != 1 ||
      inet_pton(AF_INET, address.c_str(), &own) != 1) {
    return false;
  }
  const uint32_t mask = bits == 0 ? 0 : ~uint32_t{0} << (32 - bits);
  return (ntohl(wanted.s_addr) & mask) == (ntohl(own.s_addr) & mask);
}

struct AddressInfo {
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> info{nullptr, &freeaddrinfo};
};

absl::StatusOr<AddressInfo> Numeric(const std::string& address, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("not an address: ", address));
  }
  AddressInfo result;
  result.info.reset(found);
  return result;
}

Socket NewSocket(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Socket::~Socket() { Close(); }

void Socket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

absl::StatusOr<std::vector<std::string>> OwnAddresses(const std::string& include) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return SystemError("getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, &freeifaddrs);
  const std::vector<std::string> entries = absl::StrSplit(include, ',', absl::SkipEmpty());
  std::vector<std::string> addresses;
  std::vector<std::string> loopback;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    const std::string address = AddressOf(*at);
    if (address.empty() || (at->ifa_flags & IFF_UP) == 0) continue;
    if (!entries.empty() && std::none_of(entries.begin(), entries.end(), [&](const auto& entry) {
          return Includes(entry, at->ifa_name, address);
        })) {
      continue;
    }
    ((at->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : addresses).push_back(address);
  }
  if (addresses.empty()) addresses = loopback;
  if (!addresses.empty()) return addresses;
  return absl::InvalidArgumentError(absl::StrCat(
      "no interface of this host is up that OMPI_MCA_btl_tcp_if_include=", include, " includes"));
}

absl::StatusOr<ListeningSocket> ListenOn(const std::string& address) {
  BH_ASSIGN_OR_RETURN(const AddressInfo found, Numeric(address, 0));
  ListeningSocket listener{NewSocket(found.info->ai_family), address, 0};
  const int fd = listener.socket.fd();
  if (fd < 0) return SystemError("socket");
  sockaddr_storage bound = {};
  socklen_t length = sizeof(bound);
  if (bind(fd, found.info->ai_addr, found.info->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return SystemError(absl::StrCat("cannot listen on ", address));
  }
  // The port is at the same offset for both address families.
  listener.port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  return listener;
}

Socket AcceptFrom(const std::vector<ListeningSocket>& listeners, int64_t deadline_ns) {
  constexpr int64_t kLookNanos = 10'000'000;
  std::vector<pollfd> watched;
  for (const ListeningSocket& listener : listeners) {
    watched.push_back({listener.socket.fd(), POLLIN, 0});
  }
  while (MonotonicNanos() < deadline_ns) {
    poll(watched.data(), watched.size(), static_cast<int>(kLookNanos / 1'000'000));
    for (const pollfd& ready : watched) {
      if ((ready.revents & POLLIN) == 0) continue;
      const int fd = accept4(ready.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) return Socket(fd);
    }
  }
  return Socket();
}

absl::StatusOr<Socket> ConnectTo(const std::string& address, int port, int64_t deadline_ns) {
  BH_ASSIGN_OR_RETURN(const AddressInfo found, Numeric(address, port));
  Socket made = NewSocket(found.info->ai_family);
  if (!made.is_open()) return SystemError("socket");
  if (connect(made.fd(), found.info->ai_addr, found.info->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return SystemError(address);
    if (!Await(made.fd(), POLLOUT, deadline_ns)) {
      return absl::DeadlineExceededError(absl::StrCat(address, ": no answer"));
    }
    socklen_t length = sizeof(errno);
    int error = 0;
    getsockopt(made.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    errno = error;
    if (error != 0) return SystemError(address);
  }
  return made;
}

absl::Status SendAll(const Socket& socket, absl::string_view bytes, int64_t deadline_ns) {
  while (!bytes.empty()) {
    const ssize_t n = send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(n);
    } else if (errno != EAGAIN && errno != EINTR) {
      return SystemError("send");
    } else if (!Await(socket.fd(), POLLOUT, deadline_ns)) {
      return absl::DeadlineExceededError("send");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReceiveExactly(const Socket& socket, int64_t bytes,
                                           int64_t deadline_ns) {
  std::string text(bytes, '\0');
  int64_t have = 0;
  while (have < bytes) {
    const ssize_t n = recv(socket.fd(), text.data() + have, bytes - have, 0);
    if (n > 0) {
      have += n;
    } else if (n == 0) {
      return absl::UnavailableError("the connection was closed");
    } else if (errno != EAGAIN && errno != EINTR) {
      return SystemError("recv");
    } else if (!Await(socket.fd(), POLLIN, deadline_ns)) {
      return absl::DeadlineExceededError("no answer");
    }
  }
  return text;
}

}  // namespace bulkhead
