#include "launcher/report.h"

#include <unistd.h>

#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "base/message_json.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "memory/oom_kills.h"
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

// Field 22 of /proc/PID/stat; 0 if there is no such process, or it is a zombie.
uint64_t StartTicks(int64_t pid) {
  constexpr size_t kState = 0;  // field index after the name, which may contain anything
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

// Null if `json` has no such field.
nlohmann::ordered_json FieldOf(const nlohmann::ordered_json& json, const char* name) {
  return json.is_object() ? json.value(name, nlohmann::ordered_json()) : nlohmann::ordered_json();
}

}  // namespace

absl::StatusOr<v1::Report> ReadReportFile(const std::string& path) {
  BH_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  const auto object = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  v1::Report report;
  std::string wrong = object.is_object() ? JsonToMessage(object, &report) : "the JSON object";
  if (wrong.empty() && int64_t{report.binding().rank()} >= report.ranks_size()) {
    wrong = "binding.rank";
  }
  if (wrong.empty() && !report.fits() && !report.has_short_()) wrong = "short";
  if (wrong.empty()) return report;
  return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                          path, " is not a report of 'bulkhead serve --report' or 'plan --json': ",
                          wrong, " is missing or has the wrong type")),
                      ExitCode::kUsage);
}

absl::Status WriteReport(const std::string& path, const v1::Report& report) {
  return WriteWholeFile("--report", path, MessageToJsonText(report));
}

v1::RankTable RankTableOf(const v1::Report& report) {
  v1::RankTable table;
  table.set_max_num_seqs(report.max_num_seqs());
  table.set_max_model_len(report.max_model_len());
  table.set_max_num_batched_tokens(report.max_num_batched_tokens());
  table.set_block_size(report.block_size());
  table.set_num_kv_blocks(report.num_kv_blocks());
  table.set_kv_cache_dtype(report.kv_cache_dtype());
  table.set_binding_rank(report.binding().rank());
  table.set_binding_term(report.binding().term());
  *table.mutable_ranks() = report.ranks();
  table.set_device_allocations_after_ready(report.device_allocations_after_ready());
  if (report.has_host()) {
    table.set_host_bytes(report.host().total_bytes());
    *table.mutable_host() = report.host();
  }
  return table;
}

v1::ServedProcess ThisProcess(const std::string& host) {
  const int64_t pid = getpid();
  const OomKills kills = ReadOomKills(pid);
  v1::ServedProcess process;
  process.set_host(host);
  process.set_pid_namespace(PidNamespace());
  process.set_pid(pid);
  process.set_start_ticks(StartTicks(pid));
  process.set_cgroup(kills.dir);
  process.set_oom_kill_file(kills.file);
  process.set_oom_kills(kills.count);
  process.set_oom_kills_all_together(kills.all_together);
  return process;
}

ProcessState FindProcess(const v1::ServedProcess& process) {
  if (process.pid_namespace() != PidNamespace()) return ProcessState::kNotVisible;
  return StartTicks(process.pid()) == process.start_ticks() ? ProcessState::kRuns
                                                            : ProcessState::kGone;
}

absl::Status MarkReportLost(const std::string& path, int64_t pid, const std::string& cause) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (!text.ok()) return absl::OkStatus();  // it was never written
  auto report = nlohmann::ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (FieldOf(report, "state") != "serving" || FieldOf(FieldOf(report, "process"), "pid") != pid) {
    return absl::OkStatus();
  }
  report["state"] = "lost";
  report["lost"] = cause;
  return WriteWholeFile("--report", path, report.dump(2) + "\n");
}

}  // namespace bulkhead
