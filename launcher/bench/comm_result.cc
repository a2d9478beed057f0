#include "launcher/bench/comm_result.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/check.h"
#include "launcher/bench/quantile.h"
#include "launcher/bench/rank_figures.h"
#include "launcher/text_table.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

// What the table and the JSON show of a case.
struct Figures {
  double p50_s = 0;
  double p99_s = 0;
  double algorithm_bytes_per_s = 0;
  double bus_bytes_per_s = 0;
  double bare_p50_s = 0;  // 0: there is none
  double of_bare = 0;
};

Figures FiguresOf(const CommCase& one, int ranks) {
  Figures figures;
  figures.p50_s = QuantileOf(one.call_s, 0.5);
  figures.p99_s = QuantileOf(one.call_s, 0.99);
  if (figures.p50_s > 0) {
    figures.algorithm_bytes_per_s = static_cast<double>(one.bytes) / figures.p50_s;
  }
  figures.bus_bytes_per_s = figures.algorithm_bytes_per_s * BusFactor(one.collective, ranks);
  figures.bare_p50_s = QuantileOf(one.bare_s, 0.5);
  if (figures.bare_p50_s > 0) figures.of_bare = figures.p50_s / figures.bare_p50_s;
  return figures;
}

bool HasBare(const std::vector<CommCase>& cases) {
  return std::any_of(cases.begin(), cases.end(),
                     [](const CommCase& one) { return !one.bare_s.empty(); });
}

std::string Microseconds(double seconds) { return absl::StrFormat("%.2f", seconds * 1e6); }
std::string Gigabytes(double bytes_per_s) { return absl::StrFormat("%.2f", bytes_per_s * 1e-9); }

}  // namespace

const char* CollectiveName(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kGather:
      return "gather";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kBroadcast:
      break;
  }
  return "broadcast";
}

double BusFactor(Collective collective, int ranks) {
  BH_CHECK(ranks > 0);
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * others;
    case Collective::kGather:
    case Collective::kAllGather:
      return others;
    case Collective::kBroadcast:
      break;
  }
  return 1;
}

std::string CommTable(const CommFacts& facts, const std::vector<CommCase>& cases,
                      const std::vector<CommPair>& pairs) {
  const int ranks = static_cast<int>(facts.hosts.size());
  const bool has_bare = HasBare(cases);
  std::vector<std::vector<std::string>> rows = {
      {"collective", "bytes", "message", "p50 us", "p99 us", "algbw GB/s", "busbw GB/s", "calls"}};
  if (has_bare) rows[0].insert(rows[0].end(), {"bare p50 us", "of bare"});
  for (const CommCase& one : cases) {
    const Figures figures = FiguresOf(one, ranks);
    rows.push_back({CollectiveName(one.collective), FormatCount(one.bytes),
                    one.message.empty() ? "-" : one.message, Microseconds(figures.p50_s),
                    Microseconds(figures.p99_s), Gigabytes(figures.algorithm_bytes_per_s),
                    Gigabytes(figures.bus_bytes_per_s), absl::StrCat(one.call_s.size())});
    if (!has_bare) continue;
    const bool bare = figures.bare_p50_s > 0;
    rows.back().push_back(bare ? Microseconds(figures.bare_p50_s) : "-");
    rows.back().push_back(bare ? absl::StrFormat("%.2fx", figures.of_bare) : "-");
  }
  std::string text = absl::StrCat(PlacementText(facts.hosts),
                                  facts.may_spin ? "" : ", more ranks than cores: waits yield",
                                  "; every answer checked\n", TextTable(rows));
  if (facts.shared_core_share > 0) {
    absl::StrAppendFormat(&text,
                          "behind %.0f %% of the turns ranks were on one core: such times are "
                          "those of taking turns, not of talking\n",
                          100 * facts.shared_core_share);
  }
  if (pairs.empty()) return text;
  std::vector<std::vector<std::string>> pair_rows = {{"ranks", "bare loop us", "GB/s"}};
  for (const CommPair& pair : pairs) {
    pair_rows.push_back({absl::StrCat(pair.first, " - ", pair.second), Microseconds(pair.latency_s),
                         Gigabytes(pair.bytes_per_s)});
  }
  return absl::StrCat(text, "\n", TextTable(pair_rows));
}

std::string CommJson(const CommFacts& facts, const std::vector<CommCase>& cases,
                     const std::vector<CommPair>& pairs) {
  const int ranks = static_cast<int>(facts.hosts.size());
  ordered_json json = {{"bench", "comm"},
                       {"version", facts.version},
                       {"date", facts.date},
                       {"cpu", facts.cpu},
                       {"model", facts.model},
                       {"tensor_parallel_size", ranks},
                       {"hosts", facts.hosts},
                       {"may_spin", facts.may_spin},
                       {"shared_core_share", facts.shared_core_share}};
  ordered_json list = ordered_json::array();
  for (const CommCase& one : cases) {
    const Figures figures = FiguresOf(one, ranks);
    ordered_json entry = {{"collective", CollectiveName(one.collective)},
                          {"bytes", one.bytes},
                          {"message", one.message},
                          {"calls", one.call_s.size()},
                          {"p50_us", figures.p50_s * 1e6},
                          {"p99_us", figures.p99_s * 1e6},
                          {"algorithm_gb_per_s", figures.algorithm_bytes_per_s * 1e-9},
                          {"bus_gb_per_s", figures.bus_bytes_per_s * 1e-9}};
    if (figures.bare_p50_s > 0) {
      entry["bare_p50_us"] = figures.bare_p50_s * 1e6;
      entry["of_bare"] = figures.of_bare;
    }
    list.push_back(std::move(entry));
  }
  json["cases"] = std::move(list);
  ordered_json pair_list = ordered_json::array();
  for (const CommPair& pair : pairs) {
    pair_list.push_back({{"ranks", {pair.first, pair.second}},
                         {"latency_us", pair.latency_s * 1e6},
                         {"gb_per_s", pair.bytes_per_s * 1e-9}});
  }
  json["pairs"] = std::move(pair_list);
  return json.dump(2) + "\n";
}

}  // namespace bulkhead
