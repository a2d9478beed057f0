#include "launcher/bench/serve/sweep.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "launcher/bench/serve/chart.h"
#include "launcher/bench/serve/serve.h"
#include "launcher/exit_status.h"
#include "launcher/signal_thread.h"
#include "launcher/text_table.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

constexpr double kMsPerS = 1e3;

struct Setting {
  std::string name;
  ServeBenchOptions options;
};

std::vector<Setting> SettingsOf(const SweepBenchOptions& options) {
  std::vector<Setting> settings;
  for (const double rate : options.request_rates) {
    settings.push_back({absl::StrCat("rate ", rate), options.serve});
    settings.back().options.arrivals.request_rate = rate;
  }
  for (const int concurrency : options.max_concurrencies) {
    settings.push_back({absl::StrCat("concurrency ", concurrency), options.serve});
    settings.back().options.max_concurrency = concurrency;
  }
  for (Setting& setting : settings) {
    std::optional<std::string>& dir = setting.options.result_dir;
    if (dir.has_value()) {
      dir =
          (std::filesystem::path(*dir) / absl::StrReplaceAll(setting.name, {{" ", "-"}})).string();
    }
    // Once is enough: it is the same client.
    setting.options.self_check = options.serve.self_check && &setting == &settings.front();
  }
  return settings;
}

SweepPoint PointOf(const std::string& name, BenchResult result) {
  SweepPoint point;
  point.name = name;
  const double tpot_ms = result.summary.latencies.tpot.mean.value;
  if (tpot_ms > 0) point.tokens_per_s_per_user = kMsPerS / tpot_ms;
  point.tokens_per_s = result.summary.throughput.output_tokens_per_s.value;
  point.result = std::move(result);
  return point;
}

std::string PercentileCell(const Distribution& values, double percent) {
  for (const Percentile& one : values.percentiles) {
    if (one.percent == percent && one.estimate.has_value()) {
      return absl::StrFormat("%.1f", one.estimate->value);
    }
  }
  return "-";
}

std::string MeanCell(const Distribution& values) {
  return values.count == 0 ? "-" : absl::StrFormat("%.2f", values.mean.value);
}

// Whether most of what the point was to send came to an answer; only then its figures are those of
// its load.
bool IsMeasured(const SweepPoint& point) {
  const BenchSummary& summary = point.result.summary;
  return summary.completed > summary.failed && !point.result.interrupted;
}

std::vector<std::vector<std::string>> RowsOf(const std::vector<SweepPoint>& points) {
  std::vector<std::vector<std::string>> rows = {
      {"", "req/s", "tok/s", "tok/s per user", "TTFT mean ms", "TTFT P99 ms", "TPOT mean ms",
       "E2EL mean ms", "good req/s", "failed", "KV peak", "frontier", "valid"}};
  for (const SweepPoint& point : points) {
    const BenchSummary& summary = point.result.summary;
    const auto& good = summary.throughput.good_requests_per_s;
    const auto& memory = point.result.memory;
    rows.push_back(
        {point.name, absl::StrFormat("%.2f", summary.throughput.requests_per_s.value),
         absl::StrFormat("%.1f", point.tokens_per_s),
         point.tokens_per_s_per_user > 0 ? absl::StrFormat("%.1f", point.tokens_per_s_per_user)
                                         : "-",
         MeanCell(summary.latencies.ttft), PercentileCell(summary.latencies.ttft, 99),
         MeanCell(summary.latencies.tpot), MeanCell(summary.latencies.e2el),
         good.has_value() ? absl::StrFormat("%.2f", *good) : "-", absl::StrCat(summary.failed),
         memory.has_value() && memory->kv_blocks > 0
             ? absl::StrFormat("%s%.0f %%", memory->peak_is_exact ? "" : ">= ",
                               100.0 * static_cast<double>(memory->kv_blocks_used_peak) /
                                   static_cast<double>(memory->kv_blocks))
             : "-",
         point.on_frontier ? "*" : "", point.result.why_invalid.empty() ? "yes" : "no"});
  }
  return rows;
}

Series LatencyAgainstThroughput(const std::vector<SweepPoint>& points) {
  Series series;
  for (const SweepPoint& point : points) {
    series.points.emplace_back(point.result.summary.throughput.requests_per_s.value,
                               point.result.summary.latencies.ttft.mean.value);
    series.labels.push_back(point.name);
  }
  return series;
}

// The frontier as a line, the others as dots.
std::vector<Series> FrontierSeries(std::vector<SweepPoint> points) {
  std::sort(points.begin(), points.end(), [](const SweepPoint& a, const SweepPoint& b) {
    return a.tokens_per_s_per_user < b.tokens_per_s_per_user;
  });
  Series frontier, others;
  frontier.name = "Pareto frontier";
  others.name = "beaten in both";
  others.connected = false;
  for (const SweepPoint& point : points) {
    Series& series = point.on_frontier ? frontier : others;
    series.points.emplace_back(point.tokens_per_s_per_user, point.tokens_per_s);
    series.labels.push_back(point.name);
  }
  return {frontier, others};
}

absl::Status MeasureAll(const SweepBenchOptions& options, BenchStop* stop,
                        std::vector<SweepPoint>* points) {
  std::optional<ClientCeiling> ceiling;
  for (const Setting& setting : SettingsOf(options)) {
    if (stop->stopped()) break;
    BH_RETURN_IF_ERROR(MakeResultDir(setting.options.result_dir));
    if (options.serve.progress) std::cerr << setting.name << "\n";
    BH_ASSIGN_OR_RETURN(BenchResult result, Measure(setting.options, ceiling, stop));
    ceiling = result.client.ceiling;
    BH_RETURN_IF_ERROR(SaveResult(result));
    // A signal came before anything had ended: there is nothing to tell.
    if (stop->stopped() && result.summary.completed + result.summary.failed == 0) break;
    points->push_back(PointOf(setting.name, std::move(result)));
    if (points->back().result.interrupted) break;
  }
  return absl::OkStatus();
}

absl::Status SaveSweep(const SweepBenchOptions& options, const std::vector<SweepPoint>& points) {
  if (!options.serve.result_dir.has_value()) return absl::OkStatus();
  const std::filesystem::path dir = *options.serve.result_dir;
  BH_RETURN_IF_ERROR(WriteTextFile(dir / "sweep.json", SweepJson(points)));
  BH_RETURN_IF_ERROR(WriteTextFile(dir / "sweep.html", SweepPage(points)));
  std::cout << "wrote sweep.json, sweep.html and a folder for each point into " << dir.string()
            << std::endl;
  return absl::OkStatus();
}

}  // namespace

void FindFrontier(std::vector<SweepPoint>* points) {
  for (SweepPoint& point : *points) {
    const auto beats = [&point](const SweepPoint& other) {
      const bool as_good = other.tokens_per_s >= point.tokens_per_s &&
                           other.tokens_per_s_per_user >= point.tokens_per_s_per_user;
      const bool better = other.tokens_per_s > point.tokens_per_s ||
                          other.tokens_per_s_per_user > point.tokens_per_s_per_user;
      return IsMeasured(other) && as_good && better;
    };
    point.on_frontier = IsMeasured(point) && std::none_of(points->begin(), points->end(), beats);
  }
}

std::string SweepTable(const std::vector<SweepPoint>& points) { return TextTable(RowsOf(points)); }

std::string SweepJson(const std::vector<SweepPoint>& points) {
  nlohmann::ordered_json json = {{"bench", "sweep"}, {"points", nlohmann::ordered_json::array()}};
  for (const SweepPoint& point : points) {
    json["points"].push_back({{"name", point.name},
                              {"tokens_per_s", point.tokens_per_s},
                              {"tokens_per_s_per_user", point.tokens_per_s_per_user},
                              {"on_frontier", point.on_frontier},
                              {"result", nlohmann::ordered_json::parse(ResultJson(point.result))}});
  }
  return json.dump(2) + "\n";
}

std::string SweepPage(const std::vector<SweepPoint>& points) {
  std::string html = PageBegin(
      absl::StrCat("bench sweep: ", points.empty() ? "" : points.front().result.model_id()));
  absl::StrAppend(&html, "<div class=\"charts\">\n",
                  XyChart("Throughput against what one user sees", "tokens/s of a user",
                          "tokens/s of all", FrontierSeries(points)),
                  XyChart("Time to first token against load", "completed requests/s",
                          "mean TTFT, ms", {LatencyAgainstThroughput(points)}),
                  "</div>\n<h2>Points</h2>\n", HtmlTable(RowsOf(points)));
  for (const SweepPoint& point : points) {
    for (const std::string& why : point.result.why_invalid) {
      absl::StrAppend(&html, "<p class=\"bad\">", EscapeHtml(point.name),
                      " is invalid: ", EscapeHtml(why), "</p>\n");
    }
  }
  return html + kPageEnd;
}

absl::Status RunSweepBench(const SweepBenchOptions& options) {
  BenchStop stop;
  std::atomic<int> ended_by{0};
  SignalThread signals({SIGINT, SIGTERM}, [&](const ReceivedSignal& signal) {
    if (ended_by.exchange(signal.number) != 0) _exit(128 + signal.number);
    stop.Stop();
  });
  std::vector<SweepPoint> points;
  BH_RETURN_IF_ERROR(MeasureAll(options, &stop, &points));
  FindFrontier(&points);
  std::cout << SweepTable(points);
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  BH_RETURN_IF_ERROR(SaveSweep(options, points));
  if (ended_by != 0) {
    return WithExitCode(
        absl::CancelledError("stopped by a signal; the table is of what had been measured"),
        static_cast<ExitCode>(128 + ended_by));
  }
  for (const SweepPoint& point : points) BH_RETURN_IF_ERROR(OutcomeOf(point.result));
  return absl::OkStatus();
}

}  // namespace bulkhead
