#include "launcher/flags/flag_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/host_cores.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kLongest = absl::Hours(24 * 7);

bool IsDigits(absl::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == absl::string_view::npos;
}

}  // namespace

absl::StatusOr<absl::Duration> ParseSeconds(const std::string& text) {
  absl::Duration value;
  if (const absl::StatusOr<double> seconds = ParseDecimal(text); seconds.ok()) {
    value = absl::Seconds(*seconds);
  } else if (!absl::ParseDuration(text, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a duration; write seconds (90) or units (90s, 2m)"));
  }
  if (value <= absl::ZeroDuration() || value > kLongest) {
    return absl::InvalidArgumentError(
        absl::StrCat(text, " is out of range: more than 0 s, at most 7 days"));
  }
  return value;
}

absl::StatusOr<double> ParseDecimal(absl::string_view text) {
  double value = 0;
  if (text.find_first_not_of("0123456789+-.eE") != absl::string_view::npos ||
      !absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a number"));
  }
  return value + 0.0;  // -0 becomes 0
}

absl::StatusOr<int64_t> ParseInteger(const std::string& text, int64_t min, int64_t max) {
  const auto outside = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat(text, " is out of range: at least ", min, ", at most ", max));
  };
  if (text != absl::StripAsciiWhitespace(text)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' begins or ends with a space"));
  }
  int64_t value = 0;
  if (text.empty() || text[0] != '-' || !absl::SimpleAtoi(text, &value)) {
    BH_ASSIGN_OR_RETURN(value, ParseCount(text));
  }
  if (value < min || value > max) return outside();
  return value;
}

Flags::Apply WithChoices(Flags::Apply apply, std::vector<std::string> choices) {
  apply.choices = std::move(choices);
  return apply;
}

Flags::Apply WithRange(Flags::Apply apply, int64_t min, int64_t max) {
  if (max < std::numeric_limits<int32_t>::max() - 1) {
    apply.range = absl::StrCat(min, " to ", max);
  } else if (min > std::numeric_limits<int32_t>::min()) {
    apply.range = absl::StrCat("at least ", min);
  }
  return apply;
}

Flags::Apply WithRange(Flags::Apply apply, double min, double max, Border at_min) {
  apply.range = absl::StrCat(at_min == Border::kIncluded ? "at least " : "more than ", min);
  if (max < std::numeric_limits<float>::max()) absl::StrAppend(&apply.range, ", at most ", max);
  return apply;
}

absl::StatusOr<double> ParseReal(const std::string& text, double min, double max, Border at_min) {
  BH_ASSIGN_OR_RETURN(const double value, ParseDecimal(text));
  const bool above = at_min == Border::kIncluded ? value >= min : value > min;
  if (above && value <= max) return value;
  return absl::InvalidArgumentError(absl::StrCat(
      text, " is out of range: ", at_min == Border::kIncluded ? "at least " : "more than ", min,
      ", at most ", max));
}

absl::StatusOr<uint64_t> ParseSeed(const std::string& text) {
  uint64_t value = 0;
  if (IsDigits(text) && absl::SimpleAtoi(text, &value)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a seed: a whole number from 0 to 18446744073709551615"));
}

Flags::Apply PortValue(int* out) {
  const auto apply = [=](const std::string& text) -> absl::Status {
    int port = 0;
    if (!IsDigits(text) || !absl::SimpleAtoi(text, &port) || port > 65535) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", text, "' is not a port: a whole number from 0 to 65535; 0 takes any free one"));
    }
    *out = port;
    return absl::OkStatus();
  };
  return WithRange(apply, 0, 65535);
}

Flags::Apply RankSizesValue(std::optional<RankSizes>* out, int64_t min) {
  const auto parse = [=](const std::string& text) -> absl::StatusOr<RankSizes> {
    constexpr int64_t kMaxSize = int64_t{1} << 60;
    RankSizes sizes;
    if (!absl::StrContains(text, '=')) {
      BH_ASSIGN_OR_RETURN(sizes.of_all, ParseInteger(text, min, kMaxSize));
      return sizes;
    }
    for (const absl::string_view entry : absl::StrSplit(text, ',')) {
      const std::vector<std::string> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
      int rank = 0;
      if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &rank) || rank < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", entry, "' is not RANK=SIZE; write one size, or 0=4GiB,1=2GiB"));
      }
      BH_ASSIGN_OR_RETURN(const int64_t bytes, ParseInteger(parts[1], min, kMaxSize));
      if (!sizes.of_rank.emplace(rank, bytes).second) {
        return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is named twice"));
      }
    }
    return sizes;
  };
  return OptionalValue(out, parse);
}

Flags::Apply SharesValue(std::vector<int64_t>* out, bool* automatic) {
  return [=](const std::string& text) -> absl::Status {
    constexpr int64_t kMaxShare = 1'000'000;
    out->clear();
    *automatic = text == "auto";
    if (*automatic) return absl::OkStatus();
    return ListValue(
        out, [](const std::string& share) { return ParseInteger(share, 1, kMaxShare); })(text);
  };
}

Flags::Apply NumaValue(NumaOption* out) {
  return [=](const std::string& text) -> absl::Status {
    *out = {text == "off", {}};
    if (text == "off" || text == "auto") return absl::OkStatus();
    out->nodes = ParseKernelList(text);
    std::vector<int> sorted = out->nodes;
    std::sort(sorted.begin(), sorted.end());
    const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
    if (!out->nodes.empty() && !twice && sorted.back() < kMaxNumaNodes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not auto, off or a list of NUMA nodes from 0 to ",
                     kMaxNumaNodes - 1, ", each once, such as 0-1,3"));
  };
}

Flags::Apply EntryCountValue(std::optional<KvRule>* out) {
  return [=](const std::string& text) -> absl::Status {
    if (!absl::StrContains(text, '.')) {
      BH_ASSIGN_OR_RETURN(const int64_t blocks,
                          ParseInteger(text, 1, std::numeric_limits<int32_t>::max() - 1));
      *out = KvRule{.kind = KvRule::Kind::kBlocks, .count = blocks};
      return absl::OkStatus();
    }
    const double share = ParseDecimal(text).value_or(0);
    if (!(share > 0) || share > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(text,
                       " is out of range: a share is more than 0.0 and at most 1.0; without a "
                       "point it is a number of blocks"));
    }
    *out = KvRule{.kind = KvRule::Kind::kShareOfFree, .fraction = share};
    return absl::OkStatus();
  };
}

Flags::Apply IntegersValue(std::vector<int>* out, int min, int max) {
  return ListValue(out, [=](const std::string& text) { return ParseInteger(text, min, max); });
}

absl::StatusOr<std::string> ParseText(const std::string& text) {
  if (text.empty()) return absl::InvalidArgumentError("the value is empty");
  return text;
}

Flags::Apply TextListValue(std::vector<std::string>* out) {
  return Appending([=](const std::string& text) -> absl::Status {
    BH_ASSIGN_OR_RETURN(out->emplace_back(), ParseText(text));
    return absl::OkStatus();
  });
}

Flags::Apply ModelValue(std::string* model, const std::string& hint) {
  return [=](const std::string& text) -> absl::Status {
    if (!model->empty()) {
      return absl::InvalidArgumentError(absl::StrCat("the model was given twice: '", *model,
                                                     "' and '", text, "'; give one", hint));
    }
    return TextValue(model)(text);
  };
}

absl::Status NotOneOf(const std::string& text, const std::vector<std::string>& names) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not one of ", absl::StrJoin(names, ", ")));
}

}  // namespace bulkhead
