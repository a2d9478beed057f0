#include "launcher/clients/report_text.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "launcher/clients/diagnosis.h"
#include "launcher/report.h"
#include "memory/oom_kills.h"

namespace bulkhead {
namespace {

// The state of the server that wrote it, or how it ended; empty if not by a server.
std::string StateText(const v1::Report& report) {
  if (report.has_lost()) return absl::StrCat("The group was lost: ", report.lost(), ".\n\n");
  if (report.state() == "ended") return "The server ended normally.\n\n";
  if (report.state() != "serving") return "";
  const v1::ServedProcess& process = report.process();
  const std::string who =
      absl::StrCat("rank 0 (host ", process.host(), ", pid ", process.pid(), ")");
  switch (FindProcess(process)) {
    case ProcessState::kRuns:
      return absl::StrCat("The server is running: ", who, ".\n\n");
    case ProcessState::kNotVisible:
      return absl::StrCat("The server was running when it wrote this: ", who,
                          ". Whether it still is cannot be seen from this host or container.\n\n");
    case ProcessState::kGone:
      break;
  }
  const OomKills kills = {process.cgroup(), process.oom_kill_file(), process.oom_kills(),
                          process.oom_kills_all_together()};
  const std::string oom = OomKillsText(kills);
  return absl::StrCat(
      "The server ended without a message: ", who, " is gone. ",
      !oom.empty() ? absl::StrCat("Since READY ", oom)
      : OomKillsSince(kills).has_value()
          ? absl::StrCat("The kernel killed no process for memory since READY (oom_kill ",
                         kills.count, " in ", kills.dir, ")")
          : "Whether the kernel killed it for memory can no longer be determined",
      kills.all_together ? "; its cgroup's processes are killed all together "
                           "(memory.oom.group), so that no process was left to report it"
                         : "",
      ".\n\n");
}

}  // namespace

std::string ExplainReport(const v1::Report& report) {
  const v1::RankTable table = RankTableOf(report);
  const v1::RankRow& row = table.ranks(static_cast<int>(table.binding_rank()));
  const std::string rank =
      absl::StrCat("rank ", row.rank(), row.host().empty() ? "" : absl::StrCat(" on ", row.host()));
  std::string text =
      absl::StrCat(StateText(report), report.fits() ? "It fits. " : "It does not fit. ", "Of ",
                   table.ranks_size(), table.ranks_size() == 1 ? " rank " : " ranks ", rank,
                   " is the bottleneck, with ", table.binding_term(), "; it has ",
                   FormatBytes(static_cast<int64_t>(row.total_bytes())),
                   row.required_bytes() > 0
                       ? absl::StrCat(" and needs at least ",
                                      FormatBytes(static_cast<int64_t>(row.required_bytes())))
                       : ", and under its KV rule no memory is enough",
                   " for max_num_seqs ", table.max_num_seqs(), ", max_model_len ",
                   table.max_model_len(), ", max_num_batched_tokens ",
                   table.max_num_batched_tokens(), ".\n\n", ConsumersTable(table, nullptr), "\n");
  if (!report.fits()) {
    const v1::Shortage& lack = report.short_();
    absl::StrAppend(&text, lack.term(), " needs ", FormatBytes(lack.needed_bytes()), " where ",
                    FormatBytes(lack.left_bytes()), " are left: ", FormatBytes(lack.bytes()), " (",
                    lack.bytes(), " bytes) are short.\n");
    if (report.remedies().empty()) {
      absl::StrAppend(&text, "no change that was tried helps: ", report.no_remedy(), "\n");
    } else {
      absl::StrAppend(&text, "change first: ", report.remedies(0).text(), "\n");
      for (int i = 1; i < report.remedies_size(); ++i) {
        absl::StrAppend(&text, i == 1 ? "or instead:   " : "              ",
                        report.remedies(i).text(), "\n");
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
