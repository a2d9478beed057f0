#include "comm/mpi/missing_ranks.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace bulkhead {
namespace {

namespace fs = std::filesystem;

enum class Where { kElsewhere, kStopped, kInCall };

struct Seen {
  std::string pid;
  Where where = Where::kElsewhere;
};

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The process's rank in this launch, or -1.
int RankOf(const std::string& pid, absl::string_view launch_name) {
  const std::string text = ReadAll(absl::StrCat("/proc/", pid, "/environ"));
  bool of_launch = false;
  int rank = -1;
  for (absl::string_view entry : absl::StrSplit(text, '\0')) {
    if (absl::ConsumePrefix(&entry, "PMIX_NAMESPACE=")) of_launch = entry == launch_name;
    if (absl::ConsumePrefix(&entry, "PMIX_RANK="))
      static_cast<void>(absl::SimpleAtoi(entry, &rank));
  }
  return of_launch ? rank : -1;
}

Where WhereIs(const std::string& pid, const std::string& call_name) {
  const std::string stat = ReadAll(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(") ");
  if (name_end != std::string::npos && absl::StrContains("Tt", stat.substr(name_end + 2, 1))) {
    return Where::kStopped;
  }
  std::error_code error;
  const std::string folder = absl::StrCat("/proc/", pid, "/task");
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (ReadAll(at->path() / "comm") == absl::StrCat(call_name, "\n")) return Where::kInCall;
  }
  return Where::kElsewhere;
}

// The ranks of this host; of a rank's processes (a wrapping shell) the one furthest along.
std::map<int, Seen> FindRanks(absl::string_view launch_name, const std::string& call_name) {
  std::map<int, Seen> ranks;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string pid = at->path().filename().string();
    int number = 0;
    const int rank = absl::SimpleAtoi(pid, &number) ? RankOf(pid, launch_name) : -1;
    if (rank < 0) continue;
    const Where where = WhereIs(pid, call_name);
    Seen& seen = ranks[rank];
    if (seen.pid.empty() || where > seen.where) seen = {pid, where};
  }
  return ranks;
}

}  // namespace

std::string MissingRanks(const LaunchEnvironment& launch, const std::string& call_name,
                         const Environment& environment) {
  const char* const launch_name = environment("PMIX_NAMESPACE");
  if (launch_name == nullptr) return "";
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const std::map<int, Seen> ranks = FindRanks(launch_name, call_name);
  std::vector<std::string> missing;
  for (const auto& [rank, seen] : ranks) {
    if (seen.where == Where::kInCall) continue;
    missing.push_back(
        absl::StrCat("rank ", rank, " (host ", host, ", pid ", seen.pid, ") ",
                     seen.where == Where::kStopped ? "is stopped" : "has not reached it"));
  }
  const int absent = launch.local_size - static_cast<int>(ranks.size());
  if (absent > 0 && missing.empty()) {
    missing.push_back(absl::StrCat(absent, " of the ", launch.local_size, " ranks of host ", host,
                                   absent > 1 ? " are gone" : " is gone"));
  }
  return absl::StrJoin(missing, ", ");
}

}  // namespace bulkhead
