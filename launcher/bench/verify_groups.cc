// The half of `bench verify` that starts groups.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/bench/child.h"
#include "launcher/bench/verify.h"
#include "launcher/exit_status.h"
#include "memory/exit_code.h"
#include "memory/log.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

// A file for the answers of one rank, gone in the end. Rank 0 of every group reads it: where that
// is on another host, TMPDIR must name a folder that both see.
class AnswersFile {
 public:
  AnswersFile() : fd_(mkstemp(path_.data())) {}
  AnswersFile(const AnswersFile&) = delete;
  AnswersFile& operator=(const AnswersFile&) = delete;
  ~AnswersFile() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(path_.c_str());
  }
  bool ok() const { return fd_ >= 0; }
  const std::string& path() const { return path_; }

 private:
  static std::string Folder() {
    const char* const folder = std::getenv("TMPDIR");
    return folder == nullptr || *folder == '\0' ? "/tmp" : folder;
  }

  std::string path_ = Folder() + "/bulkhead-verify-XXXXXX";
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
    BH_RETURN_IF_ERROR(StatusOfChild(absl::StrCat("the group of ", ranks), end));
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
