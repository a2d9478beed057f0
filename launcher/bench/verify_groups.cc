// The half of `bench verify` that starts groups.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"
#include "launcher/bench/child.h"
#include "launcher/bench/verify.h"
#include "launcher/exit_status.h"

namespace bulkhead {
namespace {

// Of the one AnswersFile; here because a signal's handler needs it.
char answers_path[4096];

// Calls only what a handler may, and then lets the signal do what it does by default.
void RemoveAnswers(int signal) {
  unlink(answers_path);
  raise(signal);  // the handler is used once
}

void RemoveAnswersOnSignals() {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    struct sigaction before;
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction remove = {};
    remove.sa_handler = &RemoveAnswers;
    remove.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(signal, &remove, nullptr);
  }
}

// A file for the answers of one rank, gone in the end, also when a signal is that. Rank 0 of every
// group reads it: where that is on another host, TMPDIR must name a folder that both see.
class AnswersFile {
 public:
  AnswersFile() : fd_(Make()) {}
  AnswersFile(const AnswersFile&) = delete;
  AnswersFile& operator=(const AnswersFile&) = delete;
  ~AnswersFile() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(answers_path);
  }
  bool ok() const { return fd_ >= 0; }
  std::string path() const { return answers_path; }

 private:
  static int Make() {
    const char* const folder = std::getenv("TMPDIR");
    const std::string pattern = absl::StrCat(folder == nullptr || *folder == '\0' ? "/tmp" : folder,
                                             "/bulkhead-verify-XXXXXX");
    if (pattern.size() >= sizeof(answers_path)) return -1;
    pattern.copy(answers_path, pattern.size());
    RemoveAnswersOnSignals();  // before there is anything to remove
    return mkstemp(answers_path);
  }

  const int fd_;
};

// A group that finds a difference has said so, and ends with kClientError: no failure yet.
absl::StatusOr<bool> RunOne(const VerifyGroupsOptions& options, int ranks,
                            const std::vector<std::string>& more) {
  std::vector<std::string> args = {"bench", "verify"};
  args.insert(args.end(), options.rank_args.begin(), options.rank_args.end());
  args.insert(args.end(), more.begin(), more.end());
  args.insert(args.end(), {"--tensor-parallel-size", absl::StrCat(ranks)});
  if (options.json) args.emplace_back("--json");
  BH_ASSIGN_OR_RETURN(const ChildEnd end, RunGroup(options.launch, ranks, args));
  std::cout << end.out << std::flush;
  const bool differs =
      end.exit_code == static_cast<int>(ExitCode::kClientError) && !end.out.empty();
  if (!differs) {
    BH_RETURN_IF_ERROR(StatusOfChild(GroupName(options.launch, ranks), end));
  }
  return !differs;
}

}  // namespace

absl::Status RunVerifyGroups(const VerifyGroupsOptions& options) {
  BH_RETURN_IF_ERROR(CheckMayLaunch("bench verify without --save or --against"));
  const AnswersFile file;
  if (!file.ok()) {
    return WithExitCode(absl::InternalError(absl::StrCat("cannot make ", file.path())),
                        ExitCode::kClientError);
  }
  BH_RETURN_IF_ERROR(RunOne(options, 1, {"--save", file.path()}).status());
  std::vector<int> differing;
  for (const int ranks : options.sizes) {
    BH_ASSIGN_OR_RETURN(const bool equal, RunOne(options, ranks, {"--against", file.path()}));
    if (!equal) differing.push_back(ranks);
  }
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  if (differing.empty()) return absl::OkStatus();
  return WithExitCode(
      absl::DataLossError(absl::StrCat("answers differ from those of one rank at sizes ",
                                       absl::StrJoin(differing, ", "))),
      ExitCode::kClientError);
}

}  // namespace bulkhead
