#include "launcher/bench/serve/compare.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/exit_status.h"
#include "launcher/text_table.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::json;

// A difference counts beyond this many half intervals: with a dozen metrics one in twenty would
// cry wolf in every other comparison; beyond one and a half it is one in three hundred.
constexpr double kCounts = 1.5;
constexpr double kMostFigure = 1e12;
// Beyond this share of failures the latencies, which are of the other requests, mislead.
constexpr double kMostFailedShare = 0.01;
constexpr size_t kShownBytes = 60;

absl::Status Usage(const std::string& message) {
  return WithExitCode(absl::InvalidArgumentError(message), ExitCode::kUsage);
}

std::string ShortText(const json& value) {
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= kShownBytes ? text : absl::StrCat(text.substr(0, kShownBytes), " ...");
}

enum class Better { kLower, kHigher };

struct MetricRule {
  const char* name;
  const char* pointer;  // to its estimate
  const char* of_runs;  // the same of each run, or its mean
  Better better;
};

constexpr MetricRule kMetrics[] = {
    {"request throughput (req/s)", "/throughput/requests_per_s", "request_throughput",
     Better::kHigher},
    {"output throughput (tok/s)", "/throughput/output_tokens_per_s", "output_throughput",
     Better::kHigher},
    {"mean TTFT (ms)", "/latencies/ttft_ms/mean", "mean_ttft_ms", Better::kLower},
    {"median TTFT (ms)", "/latencies/ttft_ms/median", "mean_ttft_ms", Better::kLower},
    {"P99 TTFT (ms)", "/latencies/ttft_ms/p99", "mean_ttft_ms", Better::kLower},
    {"mean TPOT (ms)", "/latencies/tpot_ms/mean", "mean_tpot_ms", Better::kLower},
    {"mean ITL (ms)", "/latencies/itl_ms/mean", "mean_tpot_ms", Better::kLower},
    {"P99 ITL (ms)", "/latencies/itl_ms/p99", "mean_tpot_ms", Better::kLower},
    {"mean E2EL (ms)", "/latencies/e2el_ms/mean", "mean_e2el_ms", Better::kLower},
    {"P99 E2EL (ms)", "/latencies/e2el_ms/p99", "mean_e2el_ms", Better::kLower},
};

const json* Find(const json& ours, const char* pointer) {
  const json::json_pointer path(pointer);
  return ours.contains(path) ? &ours.at(path) : nullptr;
}

// A figure that a measurement can have: of one that is not, no verdict would mean anything.
bool IsFigure(const json& value) {
  return value.is_number() && value.get<double>() >= 0 && value.get<double>() <= kMostFigure;
}

const json* RunsOf(const json& ours) {
  const json* runs = Find(ours, "/runs");
  return runs != nullptr && runs->is_array() ? runs : nullptr;
}

// Runs that lie further apart than one run's own interval says tell more of the uncertainty. What
// is not known of each run (a median) moves as the mean of the same does.
absl::Status WidenByRuns(const json& ours, const MetricRule& rule, const char* which,
                         Estimate* estimate) {
  const json* runs = RunsOf(ours);
  std::vector<double> figures;
  double sum = 0;
  for (const json& run : runs != nullptr ? *runs : json::array()) {
    if (!run.contains(rule.of_runs)) continue;
    if (!IsFigure(run.at(rule.of_runs))) {
      return Usage(absl::StrCat("the ", which, " file's runs have ", rule.of_runs, " ",
                                ShortText(run.at(rule.of_runs)), ": not from 0 to ", kMostFigure));
    }
    figures.push_back(run.at(rule.of_runs));
    sum += figures.back();
  }
  if (sum == 0) return absl::OkStatus();
  const double mean = sum / static_cast<double>(figures.size());
  for (const double figure : figures) {
    estimate->low = std::min(estimate->low, estimate->value * figure / mean);
    estimate->high = std::max(estimate->high, estimate->value * figure / mean);
  }
  return absl::OkStatus();
}

// Absent where the result does not have the metric.
absl::StatusOr<std::optional<Estimate>> EstimateAt(const json& ours, const MetricRule& rule,
                                                   const char* which) {
  const json* value = Find(ours, rule.pointer);
  if (value == nullptr) return std::nullopt;
  for (const char* key : {"value", "low", "high"}) {
    if (!value->is_object() || !value->contains(key) || !IsFigure(value->at(key))) {
      return Usage(absl::StrCat("the ", which, " file's ", rule.name, " is ", ShortText(*value),
                                ": value, low and high must be numbers from 0 to ", kMostFigure));
    }
  }
  Estimate estimate = {value->at("value"), value->at("low"), value->at("high")};
  if (estimate.low > estimate.high) {
    return Usage(absl::StrCat("the ", which, " file's ", rule.name, " has low ", estimate.low,
                              " above high ", estimate.high));
  }
  BH_RETURN_IF_ERROR(WidenByRuns(ours, rule, which, &estimate));
  return estimate;
}

Verdict VerdictOf(const Estimate& before, const Estimate& after, Better better, bool one_run_each) {
  const double difference = DifferenceInIntervals(before, after);
  if (std::fabs(difference) <= kCounts) return Verdict::kSame;
  if (one_run_each) return Verdict::kUnknown;
  return (difference > 0) == (better == Better::kHigher) ? Verdict::kBetter : Verdict::kWorse;
}

// What `bench serve` wrote: {"completed", "failed", "x_bulkhead": {"format", "workload", ...}}.
absl::StatusOr<json> ParseResult(const std::string& text, const char* which) {
  const json whole = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto has_count = [&whole](const char* key) {
    return whole.contains(key) && whole.at(key).is_number_unsigned();
  };
  std::string wrong;
  if (!whole.is_object() || !whole.contains("x_bulkhead") || !whole.at("x_bulkhead").is_object()) {
    wrong = "it has no x_bulkhead";
  } else if (const json& ours = whole.at("x_bulkhead"); ours.value("format", json()) != 1) {
    wrong = "its format is not 1";
  } else if (!ours.value("workload", json()).is_object()) {
    wrong = "its workload is missing or no object";
  } else if (!has_count("completed") || !has_count("failed")) {
    wrong = "its numbers of completed and failed requests are missing or no whole numbers";
  }
  if (wrong.empty()) return whole;
  return Usage(absl::StrCat(
      "the ", which, " file is no result.json of 'bulkhead bench serve --result-dir': ", wrong));
}

// Each key whose values differ, as "key: before -> after"; null stands for a key that is not there.
std::vector<std::string> DifferencesOf(const json* before, const json* after) {
  const json none = json::object();
  const json& first = before != nullptr && before->is_object() ? *before : none;
  const json& second = after != nullptr && after->is_object() ? *after : none;
  json all = first;
  all.update(second);
  std::vector<std::string> lines;
  for (const auto& [key, value] : all.items()) {
    if (key == "epoch" || key == "provenance" || key == "repeats" || key == "num_warmups") continue;
    const json was = first.value(key, json());
    const json is = second.value(key, json());
    if (was != is) lines.push_back(absl::StrCat(key, ": ", was.dump(), " -> ", is.dump()));
  }
  return lines;
}

void AddDoubts(const json& whole, const char* which, std::vector<std::string>* doubts) {
  const json& ours = whole.at("x_bulkhead");
  const json reasons = ours.value("why_invalid", json::array());
  for (const json& reason : reasons.is_array() ? reasons : json::array({reasons})) {
    doubts->push_back(
        absl::StrCat("the ", which, " result is marked invalid: ",
                     reason.is_string() ? reason.get<std::string>() : ShortText(reason)));
  }
  if (ours.value("interrupted", json(false)) != false) {
    doubts->push_back(absl::StrCat("the ", which, " measurement was stopped early"));
  }
  const auto failed = whole.at("failed").get<uint64_t>();
  const auto completed = whole.at("completed").get<uint64_t>();
  const double ended = static_cast<double>(failed) + static_cast<double>(completed);
  if (completed == 0) {
    doubts->push_back(absl::StrCat("no request of the ", which, " measurement completed"));
  } else if (static_cast<double>(failed) > kMostFailedShare * ended) {
    doubts->push_back(absl::StrFormat(
        "%d of %.0f requests of the %s measurement failed: its latencies are of the others alone",
        failed, ended, which));
  }
}

const char* VerdictText(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return "no difference shown";
    case Verdict::kBetter:
      return "better";
    case Verdict::kWorse:
      return "worse";
    case Verdict::kMixed:
      return "mixed";
    case Verdict::kUnknown:
      return "cannot tell";
  }
  return "";
}

std::string CellOf(const Estimate& estimate) {
  return absl::StrFormat("%.2f [%.2f - %.2f]", estimate.value, estimate.low, estimate.high);
}

// "-" where there is no base to compare with.
std::string ChangeText(double before, double after) {
  if (before == 0) return "-";
  const std::string text = absl::StrFormat("%+.1f %%", 100 * (after - before) / before);
  return text == "-0.0 %" ? "+0.0 %" : text;
}

std::string ComparisonText(const Comparison& comparison) {
  std::vector<std::vector<std::string>> rows = {{"", "before", "after", "change", "verdict"}};
  for (const ComparedMetric& metric : comparison.metrics) {
    rows.push_back({metric.name, CellOf(metric.before), CellOf(metric.after),
                    ChangeText(metric.before.value, metric.after.value),
                    VerdictText(metric.verdict)});
  }
  std::string text = TextTable(rows);
  for (const std::string& line : comparison.differences) {
    absl::StrAppend(&text, "differs: ", line, "\n");
  }
  for (const std::string& line : comparison.not_compared) {
    absl::StrAppend(&text, "not compared: ", line, "\n");
  }
  for (const std::string& line : comparison.doubts) absl::StrAppend(&text, "DOUBT: ", line, "\n");
  absl::StrAppend(&text, "verdict: ", VerdictText(comparison.verdict()));
  if (comparison.verdict() == Verdict::kUnknown) {
    absl::StrAppend(&text,
                    ": one run each, whose intervals do not contain what moves between runs; "
                    "measure with --repeats 3 or more");
  }
  return text + "\n";
}

std::string ComparisonJson(const Comparison& comparison) {
  nlohmann::ordered_json out = {{"verdict", VerdictText(comparison.verdict())},
                                {"metrics", nlohmann::ordered_json::array()},
                                {"not_compared", comparison.not_compared},
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

absl::StatusOr<std::string> ReadResult(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Usage(absl::StrCat(path, " is a directory; name its result.json"));
  }
  return ReadWholeFile(path);
}

}  // namespace

Verdict Comparison::verdict() const {
  const auto any = [&](Verdict verdict) {
    return std::any_of(metrics.begin(), metrics.end(),
                       [&](const ComparedMetric& metric) { return metric.verdict == verdict; });
  };
  if (any(Verdict::kUnknown)) return Verdict::kUnknown;
  if (any(Verdict::kWorse)) return any(Verdict::kBetter) ? Verdict::kMixed : Verdict::kWorse;
  return any(Verdict::kBetter) ? Verdict::kBetter : Verdict::kSame;
}

absl::StatusOr<Comparison> Compare(const std::string& before, const std::string& after,
                                   bool any_workload) {
  BH_ASSIGN_OR_RETURN(const json whole_first, ParseResult(before, "first"));
  BH_ASSIGN_OR_RETURN(const json whole_second, ParseResult(after, "second"));
  const json& first = whole_first.at("x_bulkhead");
  const json& second = whole_second.at("x_bulkhead");
  const std::vector<std::string> workload =
      DifferencesOf(Find(first, "/workload"), Find(second, "/workload"));
  if (!workload.empty() && !any_workload) {
    return Usage(absl::StrCat("the two were measured under other loads (", workload[0],
                              "); measure both with the same flags, or say --any-workload"));
  }
  Comparison comparison;
  comparison.differences = DifferencesOf(Find(first, "/server"), Find(second, "/server"));
  comparison.differences.insert(comparison.differences.end(), workload.begin(), workload.end());
  AddDoubts(whole_first, "first", &comparison.doubts);
  AddDoubts(whole_second, "second", &comparison.doubts);
  const auto has_one_run = [](const json& ours) {
    const json* runs = RunsOf(ours);
    return runs == nullptr || runs->size() < 2;
  };
  const bool one_run_each = has_one_run(first) && has_one_run(second);
  for (const MetricRule& rule : kMetrics) {
    BH_ASSIGN_OR_RETURN(const std::optional<Estimate> a, EstimateAt(first, rule, "first"));
    BH_ASSIGN_OR_RETURN(const std::optional<Estimate> b, EstimateAt(second, rule, "second"));
    if (a.has_value() && b.has_value()) {
      comparison.metrics.push_back(
          {rule.name, *a, *b, VerdictOf(*a, *b, rule.better, one_run_each)});
    } else if (a.has_value() || b.has_value()) {
      comparison.not_compared.push_back(absl::StrCat(
          rule.name, ": the ", a.has_value() ? "second" : "first", " result does not have it"));
    }
  }
  if (comparison.metrics.empty()) {
    return Usage("the two results have no metric in common: there is nothing to compare");
  }
  return comparison;
}

absl::Status RunCompareBench(const CompareBenchOptions& options) {
  BH_ASSIGN_OR_RETURN(const std::string before, ReadResult(options.before));
  BH_ASSIGN_OR_RETURN(const std::string after, ReadResult(options.after));
  BH_ASSIGN_OR_RETURN(const Comparison comparison, Compare(before, after, options.any_workload));
  std::cout << (options.json ? ComparisonJson(comparison) : ComparisonText(comparison));
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  const Verdict verdict = comparison.verdict();
  if (comparison.doubts.empty() && verdict != Verdict::kWorse && verdict != Verdict::kMixed) {
    return absl::OkStatus();
  }
  return WithExitCode(
      absl::FailedPreconditionError(
          comparison.doubts.empty()
              ? absl::StrCat(
                    options.after, " is worse than ", options.before,
                    verdict == Verdict::kMixed ? " in some metrics and better in others" : "")
              : absl::StrCat("the figures are not to be trusted: ", comparison.doubts[0])),
      ExitCode::kClientError);
}

}  // namespace bulkhead
