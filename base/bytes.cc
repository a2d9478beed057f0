#include "base/bytes.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

// The multiplier of a unit, 0 if unknown. "k" and "K" differ: 10^3 and 2^10.
double UnitFactor(absl::string_view unit) {
  if (unit.empty() || unit == "B") return 1;
  if (unit == "K") return 1024;
  if (unit == "k") return 1e3;
  const size_t power = absl::string_view("KMGT").find(absl::ascii_toupper(unit[0]));
  if (power == absl::string_view::npos) return 0;
  const absl::string_view rest = unit.substr(1);
  if (rest == "i" || rest == "iB") return std::pow(1024.0, power + 1);
  if (rest.empty() || rest == "B") return std::pow(1000.0, power + 1);
  return 0;
}

}  // namespace

absl::StatusOr<int64_t> ParseCount(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  const size_t digits = trimmed.find_first_not_of("0123456789.");
  const absl::string_view number = trimmed.substr(0, digits);
  const absl::string_view unit = absl::StripLeadingAsciiWhitespace(
      digits == absl::string_view::npos ? absl::string_view() : trimmed.substr(digits));
  const absl::Status bad = absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no whole number or size; write 4096, 32k (10^3), 32K (2^10), 4GB or 4GiB"));
  const double factor = UnitFactor(unit);
  int64_t whole = 0;
  if (factor == 1 && absl::SimpleAtoi(number, &whole)) return whole;
  double value = 0;
  if (factor == 0 || !absl::SimpleAtod(number, &value)) return bad;
  const double scaled = std::round(value * factor);
  if (!(scaled < 9.2e18))
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is too large"));
  return factor == 1 ? bad : absl::StatusOr<int64_t>(static_cast<int64_t>(scaled));
}

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::fabs(value) >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string FormatCount(int64_t count) {
  std::string digits = std::to_string(count);
  const size_t first = count < 0 ? 1 : 0;
  for (int64_t i = static_cast<int64_t>(digits.size()) - 3; i > static_cast<int64_t>(first);
       i -= 3) {
    digits.insert(i, ",");
  }
  return digits;
}

}  // namespace bulkhead
