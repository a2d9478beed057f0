#include "launcher/group/rank_parent.h"

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/launch_environment.h"
#include "comm/topology.h"
#include "launcher/exit_status.h"
#include "launcher/report.h"
#include "memory/oom_kills.h"

namespace bulkhead {
namespace {

// When the other ranks of a group would consider a stopped rank lost.
constexpr timespec kStopLook = {.tv_sec = 0, .tv_nsec = 100'000'000};
constexpr int kMostStopLooks = 30;

// Without SIGTSTP: a terminal sends it to both, and a stopped parent does no harm.
constexpr int kPassedOn[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT};

sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : kPassedOn) sigaddset(&set, signal);
  return set;
}

// A terminal's signals reach the child as well, except the hang-up, which goes to the session
// leader only.
bool IsForwarded(const siginfo_t& info) {
  return info.si_code != SI_KERNEL || info.si_signo == SIGHUP;
}

// Returns the child's status, as from waitpid, and the stop signal because of which it was killed,
// or 0: it is killed after a long stop while this process runs, since none of its own threads can
// end it. After Ctrl-Z both are stopped and no time is counted. A debugger's stop is not seen.
std::pair<int, int> WaitFor(pid_t child, const sigset_t& watched) {
  int stopped_by = 0, looks = 0;
  while (true) {
    siginfo_t info;
    if (sigtimedwait(&watched, &info, stopped_by == 0 ? nullptr : &kStopLook) < 0) {
      if (errno == EAGAIN && ++looks == kMostStopLooks) kill(child, SIGKILL);
      continue;
    }
    if (info.si_signo != SIGCHLD) {
      if (IsForwarded(info)) kill(child, info.si_signo);
      continue;
    }
    int status = 0;
    // As a container's init process it adopts every orphan.
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
      if (pid != child) continue;
      if (WIFEXITED(status) || WIFSIGNALED(status)) {
        return {status, looks < kMostStopLooks ? 0 : stopped_by};
      }
      stopped_by = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
      looks = 0;
    }
  }
}

std::string SignalText(int signal) {
  return absl::StrCat("signal ", signal, " (", sigabbrev_np(signal), ")");
}

std::string KilledBy(int signal, const OomKills& before) {
  const std::string oom = signal == SIGKILL ? OomKillsText(before) : "";
  if (!oom.empty()) {
    return absl::StrCat(" ended: ", oom,
                        "; give the host more memory, or the rank less "
                        "(--device-memory, --reserve)");
  }
  return absl::StrCat(" was killed by ", SignalText(signal));
}

[[noreturn]] void LiveAsParent(pid_t child, const sigset_t& watched, const ServeOptions& options) {
  const OomKills before = ReadOomKills(child);
  const auto topology = TopologyFrom(0, {HostIdentity()});
  const std::string name = topology.ok() ? topology->NameOf(0, child) : "rank 0";
  malloc_trim(0);
  const auto [status, stopped_by] = WaitFor(child, watched);
  const bool killed = WIFSIGNALED(status);
  const int code = stopped_by != 0 ? static_cast<int>(ExitCode::kRankLost)
                   : killed        ? 128 + WTERMSIG(status)
                                   : WEXITSTATUS(status);
  const std::string cause = absl::StrCat(
      name, stopped_by != 0
                ? absl::StrCat(" was stopped by ", SignalText(stopped_by),
                               " for 3 s, and was killed; with --no-parent it may stay stopped")
            : killed ? KilledBy(WTERMSIG(status), before)
                     : absl::StrCat(" ended with exit code ", code, "; its last line says why"));
  // A rank that exited by itself has reported the cause.
  const auto report = [&, killed = killed] {
    if (!killed) return code;
    return ExitWith(WithExitCode(absl::UnavailableError(cause), static_cast<ExitCode>(code)));
  };
  LimitEnd(report);
  if (options.report.has_value()) {
    const absl::Status marked = MarkReportLost(*options.report, child, cause);
    if (!marked.ok()) BH_LOG(kWarning) << marked.message();
  }
  _exit(report());
}

}  // namespace

absl::StatusOr<pid_t> ForkUnderParent(const ServeOptions& options) {
  if (!options.parent || ReadLaunchEnvironment(&std::getenv).by_launcher()) return 0;
  const sigset_t watched = WatchedSignals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &watched, &before);
  std::signal(SIGCHLD, SIG_DFL);  // if inherited as ignored, waitpid would not work
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    return WithExitCode(
        absl::ResourceExhaustedError(
            absl::StrCat("cannot create the rank's process: ", std::strerror(errno),
                         "; raise ulimit -u or the pids limit of the cgroup, or use --no-parent")),
        ExitCode::kGroupNotUp);
  }
  if (child > 0) LiveAsParent(child, watched, options);
  prctl(PR_SET_PDEATHSIG, SIGCONT);               // reaches a stopped child as well
  if (getppid() != parent) _exit(128 + SIGTERM);  // the parent died before that
  sigaddset(&before, SIGCONT);                    // for RankProcess
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (ReadOomKills(parent).all_together) {
    BH_LOG(kWarning) << "the kernel kills all processes of this cgroup together when its memory is "
                        "used up (memory.oom.group): none is left to report it; start with "
                        "--report FILE, and run 'bulkhead doctor --report FILE' afterwards";
  }
  return parent;
}

}  // namespace bulkhead
