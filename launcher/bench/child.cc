#include "launcher/bench/child.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/exit_code.h"
#include "base/host_cores.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/launch_environment.h"

namespace bulkhead {
namespace {

constexpr int kCannotExec = 127;
constexpr size_t kToldLines = 6;

// A file without a name, gone when it is closed.
class UnnamedFile {
 public:
  UnnamedFile() : fd_(memfd_create("child", MFD_CLOEXEC)) {}
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;
  ~UnnamedFile() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }
  std::string Text() const {
    std::string text;
    char piece[4096];
    lseek(fd_, 0, SEEK_SET);
    for (ssize_t got = 0; (got = read(fd_, piece, sizeof(piece))) > 0;) text.append(piece, got);
    return text;
  }

 private:
  const int fd_;
};

// In the child of a process that may have threads: nothing here allocates, since another thread may
// have held the allocator's lock. `words` ends with a null.
[[noreturn]] void Become(const std::vector<char*>& words, int out, int errors, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotExec);  // it died before that
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(out, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execvp(words[0], words.data());
  _exit(kCannotExec);
}

// The last lines outside of frames of dashes, in which mpirun puts pages of what might be wrong;
// the first paragraph of the first frame where there are none.
std::vector<std::string> GistOf(const std::string& errors) {
  std::vector<std::string> plain;
  std::vector<std::string> paragraph;
  int borders = 0;
  bool paragraph_ended = false;
  for (const absl::string_view line : absl::StrSplit(errors, '\n')) {
    const bool blank = absl::StripAsciiWhitespace(line).empty();
    if (absl::StartsWith(line, "-----")) {
      ++borders;
    } else if (borders % 2 == 0) {
      if (!blank) plain.emplace_back(line);
    } else if (borders == 1 && !paragraph_ended) {
      paragraph_ended = blank && !paragraph.empty();
      if (!blank) paragraph.emplace_back(line);
    }
  }
  std::vector<std::string>& gist = plain.empty() ? paragraph : plain;
  if (gist.size() > kToldLines) gist.erase(gist.begin(), gist.end() - kToldLines);
  return std::move(gist);
}

bool IsOurs(int code) {
  return code == static_cast<int>(ExitCode::kBug) ||
         (code > 0 && code <= static_cast<int>(ExitCode::kCannotBind));
}

}  // namespace

absl::StatusOr<ChildEnd> RunChild(const std::vector<std::string>& argv) {
  const UnnamedFile out;
  const UnnamedFile errors;
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = out.fd() < 0 || errors.fd() < 0 ? -1 : fork();
  if (child < 0) {
    return absl::InternalError(absl::StrCat("cannot start ", argv[0], ": ", std::strerror(errno)));
  }
  if (child == 0) Become(words, out.fd(), errors.fd(), parent);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      return absl::InternalError(absl::StrCat("waiting for ", argv[0], ": ", std::strerror(errno)));
    }
  }
  ChildEnd end;
  end.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  end.out = out.Text();
  end.errors = errors.Text();
  if (end.exit_code == kCannotExec && end.errors.empty()) {
    return WithExitCode(
        absl::NotFoundError(absl::StrCat("there is no program '", argv[0],
                                         "' that can be run; install it, or name another one with "
                                         "--launcher")),
        ExitCode::kUsage);
  }
  return end;
}

absl::Status StatusOfChild(const std::string& what, const ChildEnd& end) {
  if (end.exit_code == 0) return absl::OkStatus();
  std::vector<std::string> lines = absl::StrSplit(end.errors, '\n', absl::SkipWhitespace());
  // The cause is the last line of ours; a launcher's own words may follow it.
  const auto cause = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) {
    return absl::StartsWith(line, "bulkhead: ");
  });
  if (cause != lines.rend()) {
    lines = {std::string(absl::StripPrefix(*cause, "bulkhead: "))};
  } else {
    lines = GistOf(end.errors);
  }
  return WithExitCode(
      absl::UnavailableError(absl::StrCat(what, " ended with code ", end.exit_code,
                                          lines.empty() ? "" : ": ", absl::StrJoin(lines, " | "))),
      IsOurs(end.exit_code) ? static_cast<ExitCode>(end.exit_code) : ExitCode::kGroupNotUp);
}

std::string GroupName(const LaunchPlan& plan, int ranks) {
  return absl::StrCat("the group of ", ranks, plan.hosts.empty() || ranks == 1 ? "" : " on hosts ",
                      ranks == 1 ? "" : absl::StrJoin(plan.hosts, ", "));
}

absl::Status CheckMayLaunch(const char* command) {
  const LaunchEnvironment launch = ReadLaunchEnvironment(&std::getenv);
  if (!launch.by_launcher()) return absl::OkStatus();
  return WithExitCode(absl::FailedPreconditionError(absl::StrCat(
                          command, " starts its groups itself; run it alone, without ",
                          launch.launcher, " (--launcher says how groups are started)")),
                      ExitCode::kGroupNotUp);
}

std::vector<std::string> GroupCommand(const LaunchPlan& plan, int ranks, int cores,
                                      const std::vector<std::string>& args) {
  std::vector<std::string> command;
  if (ranks > 1) {
    command = absl::StrSplit(plan.launcher, ' ', absl::SkipEmpty());
    if (!plan.hosts.empty()) {
      const auto num_hosts = static_cast<int>(plan.hosts.size());
      const int slots = (ranks + num_hosts - 1) / num_hosts;
      command.insert(
          command.end(),
          {"--host",
           absl::StrCat(absl::StrJoin(plan.hosts, absl::StrCat(":", slots, ",")), ":", slots)});
    } else if (ranks > cores && absl::StrContains(command[0], "mpirun")) {
      command.emplace_back("--oversubscribe");
    }
    command.insert(command.end(), {"-n", absl::StrCat(ranks)});
  }
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
  command.emplace_back(length > 0 ? std::string(self, length) : "bulkhead");
  command.insert(command.end(), args.begin(), args.end());
  return command;
}

absl::StatusOr<ChildEnd> RunGroup(const LaunchPlan& launch, int ranks,
                                  const std::vector<std::string>& args) {
  const std::vector<std::string> command =
      GroupCommand(launch, ranks, static_cast<int>(AllowedCores().size()), args);
  BH_LOG(kInfo) << absl::StrJoin(command, " ");
  return RunChild(command);
}

}  // namespace bulkhead
