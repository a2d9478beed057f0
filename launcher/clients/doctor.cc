#include "launcher/clients/doctor.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/message_json.h"
#include "base/status.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "launcher/clients/capture.h"
#include "launcher/clients/client_channel.h"
#include "launcher/clients/diagnosis.h"
#include "launcher/clients/generate_output.h"
#include "launcher/clients/latency_table.h"
#include "launcher/clients/report_text.h"
#include "launcher/clients/trend.h"
#include "launcher/exit_status.h"
#include "launcher/report.h"
#include "launcher/signal_thread.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using Control = v1::Control::Stub;

absl::StatusOr<ServerSnapshot> TakeSnapshot(const std::string& target, Control* control) {
  ServerSnapshot seen;
  BH_RETURN_IF_ERROR(Ask(target, control, &Control::GetServerInfo, {}, &seen.server));
  BH_RETURN_IF_ERROR(Ask(target, control, &Control::GetModelInfo, {}, &seen.model));
  BH_RETURN_IF_ERROR(Ask(target, control, &Control::GetRankTable, {}, &seen.ranks));
  BH_RETURN_IF_ERROR(Ask(target, control, &Control::GetLoad, {}, &seen.load));
  v1::SetLimitsResponse limits;  // requested without a change
  BH_RETURN_IF_ERROR(Ask(target, control, &Control::SetLimits, {}, &limits));
  seen.now = limits.now();
  seen.sealed = limits.sealed();
  if (int64_t{seen.ranks.binding_rank()} < seen.ranks.ranks_size()) return seen;
  return WithExitCode(absl::DataLossError("the server's rank table lacks its binding rank"),
                      ExitCode::kClientError);
}

// Memory of rank 0's process, and its limit.
std::string HostSummary(const ServerSnapshot& seen) {
  const v1::LoadInfo& load = seen.load;
  const v1::HostLoad& host = load.host();
  const auto bytes = [](uint64_t count) { return FormatBytes(static_cast<int64_t>(count)); };
  std::string text = absl::StrCat("rank 0's process: ", bytes(load.resident_bytes()), " resident");
  if (host.bound_bytes() > 0) absl::StrAppend(&text, ", at most ", bytes(host.bound_bytes()));
  if (host.cgroup_limit_bytes() > 0) {
    absl::StrAppend(&text, "; its cgroup: ", bytes(host.cgroup_used_bytes()), " of ",
                    bytes(host.cgroup_limit_bytes()));
  }
  absl::StrAppend(&text, "\nconnections: ", host.connections().now(), " now, ",
                  host.connections().peak(), " at the most");
  for (const auto& [reason, count] : host.num_connections_closed_by_reason()) {
    absl::StrAppend(&text, "; closed for ", reason, ": ", count);
  }
  return text + "\n";
}

std::string DraftsText(const v1::DraftCounts& drafts) {
  const auto ratio = [&](double numerator, uint64_t of) {
    return numerator / static_cast<double>(std::max<uint64_t>(of, 1));
  };
  const auto accepted = static_cast<double>(drafts.num_accepted_tokens());
  return absl::StrFormat(
      "speculative decoding: %d of %d drafted tokens accepted (%.1f %%), %.2f tokens for each of "
      "%d drafts",
      drafts.num_accepted_tokens(), drafts.num_draft_tokens(),
      100 * ratio(accepted, drafts.num_draft_tokens()), 1 + ratio(accepted, drafts.num_drafts()),
      drafts.num_drafts());
}

std::string SummaryOf(const std::string& target, const ServerSnapshot& seen) {
  const v1::LoadInfo& load = seen.load;
  const v1::RankRow& binding = seen.ranks.ranks(static_cast<int>(seen.ranks.binding_rank()));
  std::string text = absl::StrFormat(
      "%s: %s, %d %s, bulkhead %s, up %s%s\n"
      "%srank %d%s is the bottleneck (%s)\n\n",
      target, seen.model.served_model_name(), seen.server.tensor_parallel_size(),
      seen.server.tensor_parallel_size() == 1 ? "rank" : "ranks", seen.server.version(),
      absl::FormatDuration(absl::Seconds(static_cast<int64_t>(load.uptime_s()))),
      load.draining() ? ", draining" : "",
      HoldsAllSequences(seen.ranks)
          ? "the KV cache holds max_num_seqs x max_model_len: no rank's memory limits it; of a "
            "larger one "
          : "",
      binding.rank(), binding.host().empty() ? "" : absl::StrCat(" on ", binding.host()),
      seen.ranks.binding_term());
  absl::StrAppend(&text, ConsumersTable(seen.ranks, &seen));
  absl::StrAppendFormat(
      &text,
      "\nwaiting: %d now, %d at peak; preemptions: %d; prefix cache: %d of %d tokens found\n",
      load.num_requests_waiting(), load.num_requests_waiting_peak(), load.num_preemptions_total(),
      load.prefix_cache_hits_total(), load.prefix_cache_queries_total());
  if (load.has_drafts()) absl::StrAppend(&text, DraftsText(load.drafts()), "\n");
  const std::string latencies = LatencyTable(load.histograms());
  if (!latencies.empty()) absl::StrAppend(&text, "\n", latencies, "\n");
  std::string errors;
  const std::map<std::string, uint64_t> by_reason(load.num_errors_by_reason().begin(),
                                                  load.num_errors_by_reason().end());
  for (const auto& [reason, count] : by_reason) {
    absl::StrAppend(&errors, errors.empty() ? "" : ", ", reason, " ", count);
  }
  absl::StrAppend(&text, "calls that ended with an error: ", errors.empty() ? "none" : errors,
                  "\ndevice out of memory since READY: ", load.device_allocations_after_ready(),
                  "\n");
  absl::StrAppend(&text, HostSummary(seen), "\n");
  const std::vector<Finding> findings = Diagnose(seen);
  if (findings.empty()) return text + "no memory problem: change nothing\n";
  bool first = true;
  for (const Finding& finding : findings) {
    absl::StrAppend(&text, finding.what, "\n");
    if (finding.setting.empty()) continue;
    absl::StrAppend(&text, first ? "  change first: " : "  then: ", finding.setting, "\n");
    first = false;
  }
  return text;
}

std::string JsonOf(const std::string& target, const ServerSnapshot& seen) {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const Finding& finding : Diagnose(seen)) {
    findings.push_back({{"what", finding.what}, {"setting", finding.setting}});
  }
  const nlohmann::ordered_json json = {{"target", target},
                                       {"findings", findings},
                                       {"server", MessageToJson(seen.server)},
                                       {"model", MessageToJson(WithoutConfig(seen.model))},
                                       {"rank_table", MessageToJson(seen.ranks)},
                                       {"limits", MessageToJson(LimitsOf(seen))},
                                       {"load", MessageToJson(seen.load)}};
  return json.dump(2) + "\n";
}

// One line per interval until `calls` are cancelled, and finally the trend of each metric.
absl::Status Watch(const DoctorOptions& options, Control* control, const ServerSnapshot& seen,
                   CallsInFlight& calls) {
  const absl::Time begin = absl::Now();
  std::vector<Sample> kv;
  std::vector<Sample> slots;
  std::vector<Sample> resident;
  std::printf("%8s %8s %8s %7s %12s %12s\n", "seconds", "running", "waiting", "KV", "tokens/s",
              "rank 0");
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  uint64_t tokens = seen.load.generation_tokens_total();
  absl::Time last = begin;
  while (!calls.SleepUnlessCancelled(*options.watch)) {
    v1::LoadInfo load;
    BH_RETURN_IF_ERROR(Ask(options.target, control, &Control::GetLoad, {}, &load));
    const absl::Time now = absl::Now();
    const double traffic = load.num_requests_running() + load.num_requests_waiting();
    kv.push_back({static_cast<double>(load.num_kv_blocks_used()), traffic});
    slots.push_back({static_cast<double>(load.num_requests_running()), traffic});
    resident.push_back({static_cast<double>(load.resident_bytes()), traffic});
    std::printf("%8.1f %8u %8u %5.1f %% %12.1f %12s\n", absl::ToDoubleSeconds(now - begin),
                load.num_requests_running(), load.num_requests_waiting(),
                100.0 * static_cast<double>(load.num_kv_blocks_used()) /
                    static_cast<double>(std::max<uint64_t>(1, load.num_kv_blocks())),
                static_cast<double>(load.generation_tokens_total() - tokens) /
                    absl::ToDoubleSeconds(now - last),
                FormatBytes(static_cast<int64_t>(load.resident_bytes())).c_str());
    BH_RETURN_IF_ERROR(FlushStandardOutput());
    tokens = load.generation_tokens_total();
    last = now;
    if (options.watch_for.has_value() && now - begin >= *options.watch_for) break;
  }
  if (kv.size() < kMinSamples) {
    std::printf("%d of the %d samples that a verdict needs: watch for at least %s (--for)\n",
                static_cast<int>(kv.size()), kMinSamples,
                absl::FormatDuration(kMinSamples * *options.watch).c_str());
  }
  // Relative to the start: a process with arenas is always "high".
  const double base = resident.empty() ? 0 : resident.front().level;
  const uint64_t bound = std::max(uint64_t{1}, HostGrowthBytes(seen.ranks.host()));
  for (Sample& sample : resident) sample.level -= base;
  std::printf("KV blocks: %s\nsequences: %s\nrank 0's memory: %s\n",
              TrendText(FitTrend(kv, static_cast<double>(seen.load.num_kv_blocks()))).c_str(),
              TrendText(FitTrend(slots, seen.now.max_num_seqs())).c_str(),
              TrendText(FitTrend(resident, static_cast<double>(bound))).c_str());
  return FlushStandardOutput();
}

}  // namespace

absl::Status RunDoctor(const DoctorOptions& options) {
  if (options.report.has_value()) {
    BH_ASSIGN_OR_RETURN(const v1::Report report, ReadReportFile(*options.report));
    std::fputs(ExplainReport(report).c_str(), stdout);
    return FlushStandardOutput();
  }
  CallsInFlight calls;
  // Before gRPC starts its threads, which would take the signals otherwise.
  std::optional<SignalThread> signals;
  if (options.watch.has_value()) {
    signals.emplace(std::vector<int>{SIGINT, SIGTERM},
                    [&](const ReceivedSignal&) { calls.CancelAll(); });
  }
  BH_ASSIGN_OR_RETURN(const auto channel,
                      Connect(options.target, options.credentials, kConnectLimit));
  const std::unique_ptr<Control> control = v1::Control::NewStub(channel);
  BH_ASSIGN_OR_RETURN(const ServerSnapshot seen, TakeSnapshot(options.target, control.get()));
  const std::string summary =
      options.json ? JsonOf(options.target, seen) : EscapeControls(SummaryOf(options.target, seen));
  std::fputs(summary.c_str(), stdout);
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  if (options.capture.has_value()) {
    BH_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                        WriteCapture(*options.capture, options.target, seen, summary));
    for (const std::string& path : paths) std::printf("wrote %s\n", path.c_str());
  }
  return options.watch.has_value() ? Watch(options, control.get(), seen, calls)
                                   : FlushStandardOutput();
}

}  // namespace bulkhead
