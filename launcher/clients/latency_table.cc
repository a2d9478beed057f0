#include "launcher/clients/latency_table.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "launcher/text_table.h"
#include "runtime/engine/fixed_histogram.h"

namespace bulkhead {
namespace {

std::string Time(double seconds) {
  return seconds < 1 ? absl::StrFormat("%.1f ms", seconds * 1e3)
                     : absl::StrFormat("%.2f s", seconds);
}

std::string Tokens(double count) { return absl::StrFormat("%.0f", count); }

}  // namespace

uint64_t CountOf(const v1::Histogram& histogram) {
  if (histogram.bounds_size() == 0 || histogram.counts_size() != histogram.bounds_size() + 1) {
    return 0;
  }
  uint64_t count = 0;
  for (const uint64_t each : histogram.counts()) count += each;
  return count;
}

std::string LatencyTable(const v1::RequestHistograms& histograms) {
  struct Row {
    const char* name;
    const v1::Histogram& histogram;
    std::string (*text)(double);
  };
  const Row rows[] = {
      {"time to first token", histograms.time_to_first_token_seconds(), &Time},
      {"between tokens", histograms.inter_token_latency_seconds(), &Time},
      {"queue", histograms.request_queue_time_seconds(), &Time},
      {"whole request", histograms.e2e_request_latency_seconds(), &Time},
      {"prompt tokens", histograms.request_prompt_tokens(), &Tokens},
      {"generated tokens", histograms.request_generation_tokens(), &Tokens},
  };
  std::vector<std::vector<std::string>> cells = {
      {"since READY", "count", "mean", "p50", "p90", "p99"}};
  for (const Row& row : rows) {
    const uint64_t count = CountOf(row.histogram);
    if (count == 0) continue;
    cells.push_back({row.name, FormatCount(static_cast<int64_t>(count)),
                     row.text(row.histogram.sum() / static_cast<double>(count))});
    for (const double q : {0.5, 0.9, 0.99}) {
      // Below the first bound and above the last one no more is known.
      const double rank = q * static_cast<double>(count);
      const uint64_t above = row.histogram.counts(row.histogram.bounds_size());
      const bool is_below = rank <= static_cast<double>(row.histogram.counts(0));
      const bool is_above = rank > static_cast<double>(count - above);
      cells.back().push_back(
          absl::StrCat(is_below   ? "<= "
                       : is_above ? "> "
                                  : "",
                       row.text(QuantileOf(row.histogram.bounds(), row.histogram.counts(), q))));
    }
  }
  return cells.size() == 1 ? "" : TextTable(cells);
}

}  // namespace bulkhead
