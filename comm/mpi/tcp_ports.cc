#include "comm/mpi/tcp_ports.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

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

namespace {

constexpr int kMaxAncestors = 32;

bool IsMpirun(const std::string& name) {
  static const std::set<std::string> kNames = {
      "mpirun", "mpiexec", "orterun", "mpirun.openmpi", "mpiexec.openmpi", kOpenMpi5Launcher};
  return kNames.count(name) > 0;
}

// A process's name and parent; "" and 0 if it is gone.
struct Process {
  std::string name;
  pid_t parent = 0;
};

Process ReadProcess(pid_t pid) {
  Process process;
  std::ifstream names(absl::StrCat("/proc/", pid, "/comm"));
  std::getline(names, process.name);
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(stat, text);
  const size_t name_end = text.rfind(')');  // the name may contain any character
  if (name_end == std::string::npos) return process;
  const std::vector<std::string> fields = absl::StrSplit(text.substr(name_end + 1), ' ');
  int parent = 0;
  if (fields.size() > 2 && absl::SimpleAtoi(fields[2], &parent)) process.parent = parent;
  return process;
}

// Maps the inode of each of the process's sockets to its descriptor; an error if they cannot be
// read.
absl::Status FindSockets(pid_t pid, std::map<std::string, int>& sockets) {
  std::error_code error;
  const std::string folder = absl::StrCat("/proc/", pid, "/fd");
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(at->path(), gone).string();
    absl::string_view inode = target;
    int fd = -1;
    if (!absl::ConsumePrefix(&inode, "socket:[") || !absl::ConsumeSuffix(&inode, "]") ||
        !absl::SimpleAtoi(at->path().filename().string(), &fd)) {
      continue;
    }
    sockets.emplace(inode, fd);
  }
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(folder, ": ", error.message()));
}

// The process's listening TCP descriptors and their ports.
std::map<int, std::string> ListeningOf(pid_t pid, const std::map<std::string, int>& sockets) {
  constexpr char kListen[] = "0A";
  std::map<int, std::string> found;
  for (const char* const table : {"tcp", "tcp6"}) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/net/", table));
    for (std::string line; std::getline(file, line);) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() < 10 || words[3] != kListen) continue;
      const auto socket = sockets.find(words[9]);
      const std::vector<std::string> local = absl::StrSplit(words[1], ':');
      uint32_t port = 0;
      if (socket == sockets.end() || !absl::SimpleHexAtoi(local.back(), &port)) continue;
      found.emplace(socket->second, absl::StrCat(port));
    }
  }
  return found;
}

absl::Status CloseOne(int pidfd, int fd) {
  const int copy = static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, fd, 0));
  if (copy < 0) return absl::UnavailableError(absl::StrCat("pidfd_getfd: ", std::strerror(errno)));
  const std::optional<TcpSocket> socket = TcpSocketOf(copy);
  absl::Status closed;
  if (socket.has_value() && socket->listens) closed = RefuseConnections(copy);
  close(copy);
  return closed;
}

}  // namespace

Launcher FindLauncher(pid_t from) {
  pid_t pid = ReadProcess(from).parent;
  for (int i = 0; i < kMaxAncestors && pid > 0; ++i) {
    const Process process = ReadProcess(pid);
    const Launcher found{pid, process.name};
    if (IsMpirun(process.name) || IsDaemon(found)) return found;
    pid = process.parent;
  }
  return {};
}

bool IsDaemon(const Launcher& launcher) {
  return launcher.name == "orted" || launcher.name == "prted";
}

LauncherPorts CloseLauncherPorts(const Launcher& launcher) {
  LauncherPorts ports;
  std::map<std::string, int> sockets;
  ports.why = FindSockets(launcher.pid, sockets);
  if (!ports.why.ok()) return ports;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, launcher.pid, 0));
  const std::string refused =
      pidfd < 0 ? absl::StrCat("pidfd_open: ", std::strerror(errno)) : std::string();
  for (const auto& [fd, port] : ListeningOf(launcher.pid, sockets)) {
    const absl::Status closed = pidfd < 0 ? absl::UnavailableError(refused) : CloseOne(pidfd, fd);
    if (closed.ok()) {
      ++ports.closed;
    } else {
      ports.open.push_back(port);
      ports.why = closed;
    }
  }
  if (pidfd >= 0) close(pidfd);
  return ports;
}

std::string OpenPortsText(absl::string_view whose, const std::vector<std::string>& ports,
                          const absl::Status& why) {
  const std::string rule = absl::StrCat(" -I INPUT -p tcp -m multiport --dports ",
                                        absl::StrJoin(ports, ","), " --syn -j DROP");
  return absl::StrCat(whose, " accepts connections from anyone, and this rank cannot close it (",
                      why.message(), "); keep external connections out ",
                      ports.empty()
                          ? "with a firewall"
                          : absl::StrCat("as root: iptables", rule, " && ip6tables", rule));
}

}  // namespace bulkhead
