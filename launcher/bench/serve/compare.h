// `bulkhead bench compare`: whether one result is better than another, or whether nobody can tell.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/bench/serve/statistics.h"
#include "launcher/flags/serve_bench_options.h"

namespace bulkhead {

// kUnknown: they differ by more than the intervals of one run each, which know nothing of what
// moves between runs. kMixed is of several metrics alone.
enum class Verdict { kSame, kBetter, kWorse, kMixed, kUnknown };

struct ComparedMetric {
  std::string name;
  Estimate before, after;
  Verdict verdict = Verdict::kSame;
};

struct Comparison {
  std::vector<ComparedMetric> metrics;
  std::vector<std::string> not_compared;  // metrics that one result alone has, and which lacks them
  std::vector<std::string> differences;   // of the servers: "tensor_parallel_size: 1 -> 2"
  std::vector<std::string> doubts;        // why the figures are not to be trusted; empty: none

  // Unknown when any metric is; mixed when one is better and another worse.
  Verdict verdict() const;
};

// `before` and `after`: the texts of two result.json. INVALID_ARGUMENT with exit code 2 when one is
// no result of `bench serve` or has figures that nobody can measure, when they have no metric in
// common, or when they were not of the same workload and `any_workload` is off.
absl::StatusOr<Comparison> Compare(const std::string& before, const std::string& after,
                                   bool any_workload);

// Prints the comparison; exit code 1 when the second result is worse in any metric, or one cannot
// be trusted.
absl::Status RunCompareBench(const CompareBenchOptions& options);

}  // namespace bulkhead
