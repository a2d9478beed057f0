#include "runtime/engine/rank_figures.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"

namespace bulkhead {
namespace {

std::string TotalsText(const StepTotals& totals) {
  return absl::StrFormat("%d %.9g %.9g %.9g", totals.steps, totals.step_s, totals.comm_s,
                         totals.longest_s);
}

bool ReadTotals(absl::Span<const std::string> words, StepTotals& totals) {
  return absl::SimpleAtoi(words[0], &totals.steps) && absl::SimpleAtod(words[1], &totals.step_s) &&
         absl::SimpleAtod(words[2], &totals.comm_s) &&
         absl::SimpleAtod(words[3], &totals.longest_s);
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

}  // namespace bulkhead
