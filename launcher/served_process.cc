#include "launcher/served_process.h"

#include <unistd.h>

#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/whole_file.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

std::string PidNamespace() {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  char link[64];
  const ssize_t length = readlink("/proc/self/ns/pid", link, sizeof(link));
  return absl::StrCat(boot_id, " ", absl::string_view(link, length > 0 ? length : 0));
}

// Field 22 of /proc/PID/stat; 0 if there is no such process, or only a zombie.
uint64_t StartTicks(int64_t pid) {
  constexpr size_t kState = 0;  // of the fields after the name, which may contain any character
  constexpr size_t kStart = 19;
  std::string line;
  std::getline(std::ifstream(absl::StrCat("/proc/", pid, "/stat")), line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(name_end + 1), ' ', absl::SkipEmpty());
  uint64_t ticks = 0;
  if (fields.size() <= kStart || fields[kState] == "Z" || fields[kState] == "X") return 0;
  return absl::SimpleAtoi(fields[kStart], &ticks) ? ticks : 0;
}

}  // namespace

ServedProcess ThisProcess(const std::string& host) {
  const int64_t pid = getpid();
  return {host, PidNamespace(), pid, StartTicks(pid), ReadOomKills(pid)};
}

ProcessState FindProcess(const ServedProcess& process) {
  if (process.pid_namespace != PidNamespace()) return ProcessState::kNotVisible;
  return StartTicks(process.pid) == process.start_ticks ? ProcessState::kRuns : ProcessState::kGone;
}

nlohmann::ordered_json ProcessJson(const ServedProcess& process) {
  return {{"host", process.host},
          {"pid_namespace", process.pid_namespace},
          {"pid", process.pid},
          {"start_ticks", process.start_ticks},
          {"cgroup", process.oom_kills.dir},
          {"oom_kill_file", process.oom_kills.file},
          {"oom_kills", process.oom_kills.count},
          {"oom_kills_all_together", process.oom_kills.all_together}};
}

absl::Status MarkReportLost(const std::string& path, int64_t pid, const std::string& cause) {
  std::ifstream in(path);
  auto report = nlohmann::ordered_json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object() || report.value("state", nlohmann::ordered_json()) != "serving" ||
      report.value("process", nlohmann::ordered_json::object())
              .value("pid", nlohmann::ordered_json()) != pid) {
    return absl::OkStatus();
  }
  report["state"] = "lost";
  report["lost"] = cause;
  std::ofstream out(path, std::ios::trunc);
  out << report.dump(2) << "\n" << std::flush;
  return out.good() ? absl::OkStatus() : CannotWrite("--report", path);
}

}  // namespace bulkhead
