// `bulkhead bench sweep`: one measurement at each of some rates or concurrencies.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/bench/serve/bench_result.h"
#include "launcher/flags/serve_bench_options.h"

namespace bulkhead {

struct SweepPoint {
  std::string name;  // "rate 4", "concurrency 16"
  BenchResult result;
  // What a user sees while it writes, 1 / mean TPOT; 0 where no answer had two tokens.
  double tokens_per_s_per_user = 0;
  double tokens_per_s = 0;
  bool on_frontier = false;  // no other point is better in both
};

// Marks the points on the Pareto frontier. One that was stopped early, or of which no more requests
// completed than failed, is not on it, and takes no other from it.
void FindFrontier(std::vector<SweepPoint>* points);

std::string SweepTable(const std::vector<SweepPoint>& points);
std::string SweepJson(const std::vector<SweepPoint>& points);
std::string SweepPage(const std::vector<SweepPoint>& points);

absl::Status RunSweepBench(const SweepBenchOptions& options);

}  // namespace bulkhead
