#include "launcher/bench/serve/compare.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/exit_status.h"
#include "launcher/text_table.h"
#include "memory/exit_code.h"
#include "memory/status.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::json;

// A difference counts beyond this many half intervals: with a dozen metrics one in twenty would
// cry wolf in every other comparison; beyond one and a half it is one in three hundred.
constexpr double kCounts = 1.5;

absl::Status Usage(const std::string& message) {
  return WithExitCode(absl::InvalidArgumentError(message), ExitCode::kUsage);
}

enum class Better { kLower, kHigher };

struct MetricRule {
  const char* name;
  const char* pointer;  // to its estimate
  const char* of_runs;  // the same of each run; nullptr: none
  Better better;
};

constexpr MetricRule kMetrics[] = {
    {"request throughput (req/s)", "/throughput/requests_per_s", "request_throughput",
     Better::kHigher},
    {"output throughput (tok/s)", "/throughput/output_tokens_per_s", "output_throughput",
     Better::kHigher},
    {"mean TTFT (ms)", "/latencies/ttft_ms/mean", "mean_ttft_ms", Better::kLower},
    {"median TTFT (ms)", "/latencies/ttft_ms/median", nullptr, Better::kLower},
    {"P99 TTFT (ms)", "/latencies/ttft_ms/p99", nullptr, Better::kLower},
    {"mean TPOT (ms)", "/latencies/tpot_ms/mean", "mean_tpot_ms", Better::kLower},
    {"mean ITL (ms)", "/latencies/itl_ms/mean", nullptr, Better::kLower},
    {"P99 ITL (ms)", "/latencies/itl_ms/p99", nullptr, Better::kLower},
    {"mean E2EL (ms)", "/latencies/e2el_ms/mean", "mean_e2el_ms", Better::kLower},
    {"P99 E2EL (ms)", "/latencies/e2el_ms/p99", nullptr, Better::kLower},
};

const json* Find(const json& ours, const char* pointer) {
  const json::json_pointer path(pointer);
  return ours.contains(path) ? &ours.at(path) : nullptr;
}

std::optional<Estimate> EstimateAt(const json& ours, const MetricRule& rule) {
  const json* value = Find(ours, rule.pointer);
  if (value == nullptr || !value->is_object()) return std::nullopt;
  for (const char* key : {"value", "low", "high"}) {
    if (!value->contains(key) || !value->at(key).is_number()) return std::nullopt;
  }
  Estimate estimate = {value->at("value"), value->at("low"), value->at("high")};
  // Runs that lie further apart than one run's own interval says tell more of the uncertainty.
  const json* runs = Find(ours, "/runs");
  if (rule.of_runs == nullptr || runs == nullptr || !runs->is_array()) return estimate;
  for (const json& run : *runs) {
    if (!run.contains(rule.of_runs) || !run.at(rule.of_runs).is_number()) continue;
    const double figure = run.at(rule.of_runs);
    estimate.low = std::min(estimate.low, figure);
    estimate.high = std::max(estimate.high, figure);
  }
  return estimate;
}

Verdict VerdictOf(const Estimate& before, const Estimate& after, Better better) {
  const double difference = DifferenceInIntervals(before, after);
  if (std::fabs(difference) <= kCounts) return Verdict::kSame;
  return (difference > 0) == (better == Better::kHigher) ? Verdict::kBetter : Verdict::kWorse;
}

absl::StatusOr<json> ParseResult(const std::string& text, const char* which) {
  const json whole = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_result = whole.is_object() && whole.contains("x_bulkhead") &&
                         whole.at("x_bulkhead").is_object() &&
                         whole.at("x_bulkhead").value("format", json()) == 1;
  if (!is_result) {
    return Usage(absl::StrCat("the ", which,
                              " file is no result.json of 'bulkhead bench serve --result-dir'"));
  }
  return whole.at("x_bulkhead");
}

// Each key whose values differ, as "key: before -> after".
std::vector<std::string> DifferencesOf(const json* before, const json* after) {
  std::vector<std::string> lines;
  if (before == nullptr || after == nullptr || !before->is_object() || !after->is_object()) {
    return lines;
  }
  for (const auto& [key, value] : before->items()) {
    if (key == "epoch" || key == "provenance" || key == "repeats" || key == "num_warmups") continue;
    const json other = after->value(key, json());
    if (other != value)
      lines.push_back(absl::StrCat(key, ": ", value.dump(), " -> ", other.dump()));
  }
  return lines;
}

void AddDoubts(const json& ours, const char* which, std::vector<std::string>* doubts) {
  const json* reasons = Find(ours, "/why_invalid");
  if (reasons != nullptr && reasons->is_array()) {
    for (const json& reason : *reasons) {
      doubts->push_back(absl::StrCat("the ", which, " result is marked invalid: ",
                                     reason.is_string() ? reason.get<std::string>() : ""));
    }
  }
  const json* interrupted = Find(ours, "/interrupted");
  if (interrupted != nullptr && *interrupted == true) {
    doubts->push_back(absl::StrCat("the ", which, " measurement was stopped early"));
  }
}

const char* VerdictText(Verdict verdict) {
  return verdict == Verdict::kSame ? "no difference shown"
                                   : (verdict == Verdict::kBetter ? "better" : "worse");
}

std::string CellOf(const Estimate& estimate) {
  return absl::StrFormat("%.2f [%.2f - %.2f]", estimate.value, estimate.low, estimate.high);
}

std::string ComparisonText(const Comparison& comparison) {
  std::vector<std::vector<std::string>> rows = {{"", "before", "after", "change", "verdict"}};
  for (const ComparedMetric& metric : comparison.metrics) {
    const double base = metric.before.value;
    const double change = base == 0 ? 0 : 100 * (metric.after.value - base) / base;
    rows.push_back({metric.name, CellOf(metric.before), CellOf(metric.after),
                    absl::StrFormat("%+.1f %%", change), VerdictText(metric.verdict)});
  }
  std::string text = TextTable(rows);
  for (const std::string& line : comparison.differences) {
    absl::StrAppend(&text, "differs: ", line, "\n");
  }
  for (const std::string& line : comparison.doubts) absl::StrAppend(&text, "DOUBT: ", line, "\n");
  return absl::StrCat(text, "verdict: ", VerdictText(comparison.verdict()), "\n");
}

std::string ComparisonJson(const Comparison& comparison) {
  nlohmann::ordered_json out = {{"verdict", VerdictText(comparison.verdict())},
                                {"metrics", nlohmann::ordered_json::array()},
                                {"differences", comparison.differences},
                                {"doubts", comparison.doubts}};
  for (const ComparedMetric& metric : comparison.metrics) {
    out["metrics"].push_back(
        {{"name", metric.name},
         {"before", {metric.before.value, metric.before.low, metric.before.high}},
         {"after", {metric.after.value, metric.after.low, metric.after.high}},
         {"verdict", VerdictText(metric.verdict)}});
  }
  return out.dump(2) + "\n";
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return Usage(absl::StrCat("cannot read ", path));
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

}  // namespace

Verdict Comparison::verdict() const {
  Verdict verdict = Verdict::kSame;
  for (const ComparedMetric& metric : metrics) {
    if (metric.verdict == Verdict::kWorse) return Verdict::kWorse;
    if (metric.verdict == Verdict::kBetter) verdict = Verdict::kBetter;
  }
  return verdict;
}

absl::StatusOr<Comparison> Compare(const std::string& before, const std::string& after,
                                   bool any_workload) {
  BH_ASSIGN_OR_RETURN(const json first, ParseResult(before, "first"));
  BH_ASSIGN_OR_RETURN(const json second, ParseResult(after, "second"));
  const std::vector<std::string> workload =
      DifferencesOf(Find(first, "/workload"), Find(second, "/workload"));
  if (!workload.empty() && !any_workload) {
    return Usage(absl::StrCat("the two were measured under other loads (", workload[0],
                              "); measure both with the same flags, or say --any-workload"));
  }
  Comparison comparison;
  comparison.differences = DifferencesOf(Find(first, "/server"), Find(second, "/server"));
  comparison.differences.insert(comparison.differences.end(), workload.begin(), workload.end());
  AddDoubts(first, "first", &comparison.doubts);
  AddDoubts(second, "second", &comparison.doubts);
  for (const MetricRule& rule : kMetrics) {
    const auto a = EstimateAt(first, rule);
    const auto b = EstimateAt(second, rule);
    if (!a.has_value() || !b.has_value()) continue;
    comparison.metrics.push_back({rule.name, *a, *b, VerdictOf(*a, *b, rule.better)});
  }
  return comparison;
}

absl::Status RunCompareBench(const CompareBenchOptions& options) {
  BH_ASSIGN_OR_RETURN(const std::string before, ReadFile(options.before));
  BH_ASSIGN_OR_RETURN(const std::string after, ReadFile(options.after));
  BH_ASSIGN_OR_RETURN(const Comparison comparison, Compare(before, after, options.any_workload));
  std::cout << (options.json ? ComparisonJson(comparison) : ComparisonText(comparison));
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  if (comparison.doubts.empty() && comparison.verdict() != Verdict::kWorse) {
    return absl::OkStatus();
  }
  return WithExitCode(
      absl::FailedPreconditionError(
          comparison.doubts.empty()
              ? absl::StrCat(options.after, " is worse than ", options.before)
              : absl::StrCat("the figures are not to be trusted: ", comparison.doubts[0])),
      ExitCode::kClientError);
}

}  // namespace bulkhead
