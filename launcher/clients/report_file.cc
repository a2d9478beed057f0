#include "launcher/clients/report_file.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/clients/diagnosis.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::json;

// Records the first field that is missing or has the wrong type, which is then read as 0.
class Fields {
 public:
  Fields(const json& object, std::string where, std::string& wrong)
      : object_(object), where_(std::move(where)), wrong_(wrong) {}

  int64_t Integer(const char* name) const {
    const json* value = Find(name);
    if (value == nullptr || !value->is_number_integer()) return Wrong<int64_t>(name);
    return value->get<int64_t>();
  }
  uint64_t Natural(const char* name) const {
    const json* value = Find(name);
    if (value == nullptr || !value->is_number_unsigned()) return Wrong<uint64_t>(name);
    return value->get<uint64_t>();
  }
  std::string Text(const char* name) const {
    const json* value = Find(name);
    if (value == nullptr || !value->is_string()) return Wrong<std::string>(name);
    return value->get<std::string>();
  }
  bool Boolean(const char* name) const {
    const json* value = Find(name);
    if (value == nullptr || !value->is_boolean()) return Wrong<bool>(name);
    return value->get<bool>();
  }
  const json& Object(const char* name) const {
    const json* value = Find(name);
    return value != nullptr && value->is_object() ? *value : WrongPart(name);
  }
  const json& Array(const char* name) const {
    const json* value = Find(name);
    return value != nullptr && value->is_array() ? *value : WrongPart(name);
  }

 private:
  const json* Find(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  template <typename T>
  T Wrong(const char* name) const {
    if (wrong_.empty()) wrong_ = absl::StrCat(where_, name);
    return T{};
  }
  const json& WrongPart(const char* name) const {
    static const json* const kNothing = new json();
    Wrong<int>(name);
    return *kNothing;
  }

  const json& object_;
  const std::string where_;
  std::string& wrong_;
};

v1::RankRow RowOf(const json& object, const std::string& where, std::string& wrong) {
  const Fields fields(object, where, wrong);
  v1::RankRow row;
  row.set_rank(static_cast<uint32_t>(fields.Natural("rank")));
  row.set_host(fields.Text("host"));
  row.set_device(fields.Text("device"));
  row.set_total_bytes(fields.Natural("total_bytes"));
  row.set_others_bytes(fields.Natural("others_bytes"));
  row.set_reserve_bytes(fields.Natural("reserve_bytes"));
  row.set_required_bytes(fields.Natural("required_bytes"));
  row.set_stranded_bytes(fields.Natural("stranded_bytes"));
  row.set_kv_rule(fields.Text("kv_rule"));
  for (const auto& [term, bytes] : fields.Object("arenas").items()) {
    v1::Arena& arena = *row.add_arenas();
    arena.set_term(term);
    if (bytes.is_number_unsigned()) arena.set_bytes(bytes.get<uint64_t>());
  }
  return row;
}

ServedProcess ProcessOf(const json& object, std::string& wrong) {
  const Fields fields(object, "process.", wrong);
  ServedProcess process;
  process.host = fields.Text("host");
  process.pid_namespace = fields.Text("pid_namespace");
  process.pid = fields.Integer("pid");
  process.start_ticks = fields.Natural("start_ticks");
  process.oom_kills.dir = fields.Text("cgroup");
  process.oom_kills.file = fields.Text("oom_kill_file");
  process.oom_kills.count = fields.Integer("oom_kills");
  process.oom_kills.all_together = fields.Boolean("oom_kills_all_together");
  return process;
}

v1::HostBudget HostOf(const json& object, std::string& wrong) {
  const Fields fields(object, "host.", wrong);
  v1::HostBudget host;
  host.set_total_bytes(fields.Natural("total_bytes"));
  host.set_available_bytes(fields.Natural("available_bytes"));
  host.set_message_bytes(fields.Natural("message_bytes"));
  host.set_max_connections(static_cast<uint32_t>(fields.Natural("max_connections")));
  host.set_max_open_calls(static_cast<uint32_t>(fields.Natural("max_open_calls")));
  host.set_answer_bytes(fields.Natural("answer_bytes"));
  for (const auto& [term, bytes] : fields.Object("terms").items()) {
    v1::Arena& part = *host.add_terms();
    part.set_term(term);
    if (bytes.is_number_unsigned()) part.set_bytes(bytes.get<uint64_t>());
  }
  return host;
}

ReportFile ReportOf(const json& object, std::string& wrong) {
  const Fields fields(object, "", wrong);
  ReportFile report;
  report.fits = fields.Boolean("fits");
  if (object.contains("lost")) report.lost = fields.Text("lost");
  if (object.contains("state")) {
    report.state = fields.Text("state");
    report.process = ProcessOf(fields.Object("process"), wrong);
  }
  v1::RankTable& table = report.ranks;
  table.set_max_num_seqs(static_cast<uint32_t>(fields.Natural("max_num_seqs")));
  table.set_max_model_len(static_cast<uint32_t>(fields.Natural("max_model_len")));
  table.set_max_num_batched_tokens(static_cast<uint32_t>(fields.Natural("max_num_batched_tokens")));
  table.set_num_kv_blocks(fields.Natural("num_kv_blocks"));
  table.set_block_size(static_cast<uint32_t>(fields.Natural("block_size")));
  table.set_kv_cache_dtype(fields.Text("kv_cache_dtype"));
  table.set_device_allocations_after_ready(fields.Natural("device_allocations_after_ready"));
  const Fields binding(fields.Object("binding"), "binding.", wrong);
  table.set_binding_rank(static_cast<uint32_t>(binding.Natural("rank")));
  table.set_binding_term(binding.Text("term"));
  for (const json& rank : fields.Array("ranks")) {
    *table.add_ranks() = RowOf(rank, absl::StrCat("ranks[", table.ranks_size(), "]."), wrong);
  }
  if (static_cast<int>(table.binding_rank()) >= table.ranks_size() && wrong.empty()) {
    wrong = "binding.rank";
  }
  if (object.contains("host")) *table.mutable_host() = HostOf(fields.Object("host"), wrong);
  if (report.fits) return report;
  const Fields lack(fields.Object("short"), "short.", wrong);
  report.short_rank = static_cast<int>(lack.Integer("rank"));
  report.short_term = lack.Text("term");
  report.short_bytes = lack.Integer("bytes");
  report.needed_bytes = lack.Integer("needed_bytes");
  report.left_bytes = lack.Integer("left_bytes");
  for (const json& remedy : fields.Array("remedies")) {
    report.remedies.push_back(Fields(remedy, "remedies.", wrong).Text("text"));
  }
  if (report.remedies.empty()) report.no_remedy = fields.Text("no_remedy");
  return report;
}

}  // namespace

absl::StatusOr<ReportFile> ReadReportFile(const std::string& path) {
  BH_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::string wrong = object.is_object() ? "" : "the JSON object";
  ReportFile report;
  if (wrong.empty()) report = ReportOf(object, wrong);
  if (wrong.empty()) return report;
  return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                          path, " is not a report of 'bulkhead serve --report' or 'plan --json': ",
                          wrong, " is missing or has the wrong type")),
                      ExitCode::kUsage);
}

namespace {

// The state of the server that wrote it, or how it ended; empty if not by a server.
std::string StateText(const ReportFile& report) {
  if (!report.lost.empty()) return absl::StrCat("The group was lost: ", report.lost, ".\n\n");
  if (report.state == "ended") return "The server ended normally.\n\n";
  if (report.state != "serving") return "";
  const ServedProcess& process = report.process;
  const std::string who = absl::StrCat("rank 0 (host ", process.host, ", pid ", process.pid, ")");
  switch (FindProcess(process)) {
    case ProcessState::kRuns:
      return absl::StrCat("The server is running: ", who, ".\n\n");
    case ProcessState::kNotVisible:
      return absl::StrCat("The server was running when it wrote this: ", who,
                          ". Whether it still is cannot be seen from this host or container.\n\n");
    case ProcessState::kGone:
      break;
  }
  const std::string oom = OomKillsText(process.oom_kills);
  return absl::StrCat(
      "The server ended without a message: ", who, " is gone. ",
      !oom.empty() ? absl::StrCat("Since READY ", oom)
      : OomKillsSince(process.oom_kills).has_value()
          ? absl::StrCat("The kernel killed no process for memory since READY (oom_kill ",
                         process.oom_kills.count, " in ", process.oom_kills.dir, ")")
          : "Whether the kernel killed it for memory can no longer be determined",
      process.oom_kills.all_together ? "; its cgroup's processes are killed all together "
                                       "(memory.oom.group), so that nobody was left to say so"
                                     : "",
      ".\n\n");
}

}  // namespace

std::string ExplainReport(const ReportFile& report) {
  const v1::RankTable& table = report.ranks;
  const v1::RankRow& row = table.ranks(static_cast<int>(table.binding_rank()));
  const std::string rank =
      absl::StrCat("rank ", row.rank(), row.host().empty() ? "" : absl::StrCat(" on ", row.host()));
  std::string text = absl::StrCat(
      StateText(report), report.fits ? "It fits. " : "It does not fit. ", "Of ", table.ranks_size(),
      table.ranks_size() == 1 ? " rank " : " ranks ", rank, " binds, with ", table.binding_term(),
      "; it has ", FormatBytes(static_cast<int64_t>(row.total_bytes())),
      row.required_bytes() > 0
          ? absl::StrCat(" and needs at least ",
                         FormatBytes(static_cast<int64_t>(row.required_bytes())))
          : ", and under its KV rule no memory is enough",
      " for max_num_seqs ", table.max_num_seqs(), ", max_model_len ", table.max_model_len(),
      ", max_num_batched_tokens ", table.max_num_batched_tokens(), ".\n\n",
      ConsumersTable(table, nullptr), "\n");
  if (!report.fits) {
    absl::StrAppend(&text, report.short_term, " needs ", FormatBytes(report.needed_bytes),
                    " where ", FormatBytes(report.left_bytes),
                    " are left: ", FormatBytes(report.short_bytes), " (", report.short_bytes,
                    " bytes) are short.\n");
    if (report.remedies.empty()) {
      absl::StrAppend(&text, "no change of one flag or two helps: ", report.no_remedy, "\n");
    } else {
      absl::StrAppend(&text, "change first: ", report.remedies[0], "\n");
      for (size_t i = 1; i < report.remedies.size(); ++i) {
        absl::StrAppend(&text, i == 1 ? "or instead:   " : "              ", report.remedies[i],
                        "\n");
      }
    }
    return text;
  }
  absl::StrAppend(&text, "KV: ", FormatCount(static_cast<int64_t>(table.num_kv_blocks())),
                  " blocks of ", table.block_size(), " tokens (", row.kv_rule(), ").\n");
  uint64_t stranded = 0;
  for (const v1::RankRow& other : table.ranks()) stranded += other.stranded_bytes();
  if (stranded > 0) {
    absl::StrAppend(&text, FormatBytes(static_cast<int64_t>(stranded)),
                    " are unused on the other ranks; --tp-shares auto would use them.\n");
  }
  absl::StrAppend(&text, "device allocations after READY: ", table.device_allocations_after_ready(),
                  " (must be 0).\n");
  return text;
}

}  // namespace bulkhead
