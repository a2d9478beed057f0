#include "launcher/bench/rank_figures.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "base/bytes.h"
#include "launcher/text_table.h"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

std::string TotalsText(const StepTotals& totals) {
  return absl::StrFormat("%d %.9g %.9g %.9g", totals.steps, totals.step_s, totals.comm_s,
                         totals.longest_s);
}

bool ReadTotals(absl::Span<const std::string> words, StepTotals& totals) {
  return absl::SimpleAtoi(words[0], &totals.steps) && absl::SimpleAtod(words[1], &totals.step_s) &&
         absl::SimpleAtod(words[2], &totals.comm_s) &&
         absl::SimpleAtod(words[3], &totals.longest_s);
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

ordered_json MeansJson(const StepTotals& totals) {
  const auto steps = static_cast<double>(totals.steps);
  return {{"steps", totals.steps},
          {"step_ms", 1e3 * Share(totals.step_s, steps)},
          {"compute_ms", 1e3 * Share(totals.compute_s(), steps)},
          {"comm_share", Share(totals.comm_s, totals.step_s)},
          {"longest_ms", 1e3 * totals.longest_s}};
}

std::vector<std::string> Cells(const StepTotals& totals) {
  if (totals.steps == 0) return {"-", "-", "-"};
  const auto steps = static_cast<double>(totals.steps);
  return {absl::StrFormat("%.3f", 1e3 * totals.step_s / steps),
          absl::StrFormat("%.3f", 1e3 * totals.compute_s() / steps),
          absl::StrFormat("%.1f %%", 100 * Share(totals.comm_s, totals.step_s))};
}

std::string SkewText(const std::vector<RankFigures>& ranks, const char* what,
                     StepTotals RankFigures::*kind) {
  if ((ranks[0].*kind).steps == 0) return "";
  const Skew skew = SkewOf(ranks, kind);
  return absl::StrFormat(
      "%s: rank %d (%s) is the slowest, it computes %.1f %% longer than the mean\n", what,
      skew.slowest_rank, ranks[skew.slowest_rank].host, 100 * skew.excess);
}

}  // namespace

void StepTotals::Add(double step_seconds, double comm_seconds) {
  ++steps;
  step_s += step_seconds;
  comm_s += comm_seconds;
  longest_s = std::max(longest_s, step_seconds);
}

std::string RankFigures::Serialize() const {
  return absl::StrFormat("%s %s %.9g %d %d %.9g %.9g %s", TotalsText(decode), TotalsText(prefill),
                         load_s, load_bytes, resident_bytes_peak, clock_offset_us, clock_error_us,
                         host);
}

absl::StatusOr<RankFigures> RankFigures::Parse(absl::string_view text) {
  constexpr size_t kWords = 14;
  const std::vector<std::string> words = absl::StrSplit(text, absl::MaxSplits(' ', kWords - 1));
  RankFigures figures;
  if (words.size() != kWords || !ReadTotals(absl::MakeSpan(words).subspan(0, 4), figures.decode) ||
      !ReadTotals(absl::MakeSpan(words).subspan(4, 4), figures.prefill) ||
      !absl::SimpleAtod(words[8], &figures.load_s) ||
      !absl::SimpleAtoi(words[9], &figures.load_bytes) ||
      !absl::SimpleAtoi(words[10], &figures.resident_bytes_peak) ||
      !absl::SimpleAtod(words[11], &figures.clock_offset_us) ||
      !absl::SimpleAtod(words[12], &figures.clock_error_us)) {
    return absl::InternalError(absl::StrCat("not a rank's figures: '", text, "'"));
  }
  figures.host = words[13];
  return figures;
}

Skew SkewOf(const std::vector<RankFigures>& ranks, StepTotals RankFigures::*kind) {
  Skew skew;
  double sum = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const double mine = (ranks[rank].*kind).compute_s();
    sum += mine;
    if (mine > (ranks[skew.slowest_rank].*kind).compute_s()) {
      skew.slowest_rank = static_cast<int>(rank);
    }
  }
  if (sum > 0) {
    const double mean = sum / static_cast<double>(ranks.size());
    skew.excess = (ranks[skew.slowest_rank].*kind).compute_s() / mean - 1;
  }
  return skew;
}

double CommShare(const std::vector<RankFigures>& ranks, StepTotals RankFigures::*kind) {
  double comm = 0;
  double step = 0;
  for (const RankFigures& rank : ranks) {
    comm += (rank.*kind).comm_s;
    step += (rank.*kind).step_s;
  }
  return Share(comm, step);
}

std::string PlacementText(const std::vector<std::string>& hosts) {
  std::vector<std::string> runs;
  for (size_t first = 0, next = 0; first < hosts.size(); first = next) {
    while (next < hosts.size() && hosts[next] == hosts[first]) ++next;
    runs.push_back(absl::StrCat(first, next > first + 1 ? absl::StrCat("-", next - 1) : "", " on ",
                                hosts[first]));
  }
  return absl::StrCat(hosts.size() == 1 ? "rank " : "ranks ", absl::StrJoin(runs, ", "));
}

std::string ClockText(double offset_us, double error_us) {
  return absl::StrFormat("%+.1f +- %.1f", offset_us, error_us);
}

std::string RankTable(const std::vector<RankFigures>& ranks) {
  std::vector<std::vector<std::string>> rows = {
      {"rank", "host", "loaded in s", "read", "peak resident", "clock us", "decode ms/step",
       "compute ms", "comm", "prefill ms/step", "compute ms", "comm"}};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankFigures& figures = ranks[rank];
    std::vector<std::string> row = {absl::StrCat(rank),
                                    figures.host,
                                    absl::StrFormat("%.2f", figures.load_s),
                                    FormatBytes(figures.load_bytes),
                                    FormatBytes(figures.resident_bytes_peak),
                                    ClockText(figures.clock_offset_us, figures.clock_error_us)};
    for (const StepTotals& totals : {figures.decode, figures.prefill}) {
      for (std::string& cell : Cells(totals)) row.push_back(std::move(cell));
    }
    rows.push_back(std::move(row));
  }
  std::string text = TextTable(rows);
  if (ranks.size() < 2) return text;
  return absl::StrCat(text, SkewText(ranks, "decode", &RankFigures::decode),
                      SkewText(ranks, "prefill", &RankFigures::prefill));
}

ordered_json RanksJson(const std::vector<RankFigures>& ranks) {
  ordered_json list = ordered_json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankFigures& figures = ranks[rank];
    list.push_back({{"rank", rank},
                    {"host", figures.host},
                    {"load_s", figures.load_s},
                    {"load_bytes", figures.load_bytes},
                    {"resident_bytes_peak", figures.resident_bytes_peak},
                    {"clock_offset_us", figures.clock_offset_us},
                    {"clock_error_us", figures.clock_error_us},
                    {"decode", MeansJson(figures.decode)},
                    {"prefill", MeansJson(figures.prefill)}});
  }
  ordered_json json = {{"ranks", std::move(list)}};
  for (const auto& [name, kind] :
       {std::pair{"decode", &RankFigures::decode}, std::pair{"prefill", &RankFigures::prefill}}) {
    const Skew skew = SkewOf(ranks, kind);
    json[name] = {{"slowest_rank", skew.slowest_rank},
                  {"slowest_excess", skew.excess},
                  {"comm_share", CommShare(ranks, kind)}};
  }
  return json;
}

}  // namespace bulkhead
