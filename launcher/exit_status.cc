#include "launcher/exit_status.h"

#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/exit_code.h"
#include "base/log.h"

namespace bulkhead {
namespace {

constexpr int kPatienceMs = 100;
constexpr absl::Duration kFirstRankDelay = absl::Milliseconds(500);
// mpirun kills a second after SIGTERM.
constexpr absl::Duration kReportDelay = absl::Milliseconds(500);
constexpr absl::Duration kLongestEnd = absl::Seconds(5);
// Reading takes a launcher less than a millisecond, on a busy machine tens of them.
constexpr absl::Duration kReadCheckInterval = absl::Microseconds(100);
constexpr int kReadChecks = 8000;

std::string LaunchedRank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* rank = std::getenv(variable);
    if (rank != nullptr) return rank;
  }
  return "0";
}

}  // namespace

bool IsFirstRank() { return LaunchedRank() == "0"; }

absl::Status FlushStandardOutput() {
  std::cout.flush();
  // The error flag is also set by an earlier failed write, with nothing left to flush.
  if (std::cout && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  // A pipe has an error then, and a socket or terminal hangs up.
  pollfd out{STDOUT_FILENO, 0, 0};
  if (poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0) {
    return WithExitCode(absl::CancelledError("the reader of standard output has gone"),
                        kReaderGone);
  }
  return WithExitCode(absl::DataLossError("cannot write standard output; results are lost"),
                      ExitCode::kClientError);
}

absl::Status PrintLine(const std::string& line) {
  int unread = 0;
  for (int i = 0; std::getenv("PRTE_LAUNCHED") != nullptr && i < kReadChecks &&
                  ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0;
       ++i) {
    absl::SleepFor(kReadCheckInterval);
  }
  std::cout << line << "\n";
  return FlushStandardOutput();
}

void LimitEnd(std::function<int()> report) {
  auto* const call = new std::function<int()>(std::move(report));
  // Not std::thread, which throws if the system refuses a thread.
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void* argument) -> void* {
        absl::SleepFor(kReportDelay);
        const int code = (*static_cast<std::function<int()>*>(argument))();
        absl::SleepFor(kLongestEnd);
        _exit(code);
      },
      call);
}

int ExitWith(const absl::Status& status) {
  static std::atomic<bool> printed = false;
  if (!status.ok() && ExitCodeOf(status) != kReaderGone && !printed.exchange(true)) {
    std::string cause(status.message());
    // One line, even if a server's or file's text has several.
    std::replace_if(cause.begin(), cause.end(), absl::ascii_iscntrl, ' ');
    WriteLine(absl::StrCat("bulkhead: ", cause, "\n"), kPatienceMs);
  }
  return static_cast<int>(ExitCodeOf(status));
}

bool EndedByLauncher() {
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &end, nullptr);
  const timespec limit = absl::ToTimespec(kFirstRankDelay);
  return sigtimedwait(&end, nullptr, &limit) == SIGTERM;
}

int ExitRankWith(const absl::Status& status) {
  if (IsFirstRank()) return ExitWith(status);
  if (!status.ok()) EndedByLauncher();
  return static_cast<int>(ExitCodeOf(status));
}

int ExitUnjoinedRankWith(const absl::Status& status) {
  if (status.ok() || IsFirstRank()) return ExitWith(status);
  if (EndedByLauncher()) return static_cast<int>(ExitCodeOf(status));
  // Still here: the first rank does not have the same error.
  return ExitWith(WithExitCode(
      absl::Status(status.code(), absl::StrCat("rank ", LaunchedRank(), ": ", status.message())),
      ExitCodeOf(status)));
}

}  // namespace bulkhead
