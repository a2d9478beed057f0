#include "comm/launcher_ports.h"

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
#include "comm/tcp_ports.h"

namespace bulkhead {
namespace {

constexpr int kMaxAncestors = 32;

bool IsMpirun(const std::string& name) {
  static const std::set<std::string> kNames = {"mpirun", "mpiexec", "orterun", "mpirun.openmpi",
                                               "mpiexec.openmpi"};
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

bool IsDaemon(const Launcher& launcher) { return launcher.name == "orted"; }

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

std::string FirewallLine(const std::vector<std::string>& ports) {
  const std::string rule = absl::StrCat(" -I INPUT -p tcp -m multiport --dports ",
                                        absl::StrJoin(ports, ","), " --syn -j DROP");
  return absl::StrCat("iptables", rule, " && ip6tables", rule);
}

}  // namespace bulkhead
