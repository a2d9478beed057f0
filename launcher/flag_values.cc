#include "launcher/flag_values.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "memory/bytes.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kLongest = absl::Hours(24 * 7);

absl::StatusOr<absl::Duration> ParseSeconds(const std::string& text) {
  absl::Duration value;
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    value = absl::Seconds(seconds);  // NaN becomes an infinite duration, which is over the limit
  } else if (!absl::ParseDuration(text, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no duration; write seconds (90) or units (90s, 2m)"));
  }
  if (value <= absl::ZeroDuration() || value > kLongest) {
    return absl::InvalidArgumentError(
        absl::StrCat(text, " is out of range: more than 0 s, at most 7 days"));
  }
  return value;
}

}  // namespace

absl::StatusOr<int64_t> ParseInteger(const std::string& text, int64_t min, int64_t max) {
  const auto outside = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat(text, " is out of range: at least ", min, ", at most ", max));
  };
  int64_t value = 0;
  if (text.empty() || text[0] != '-' || !absl::SimpleAtoi(text, &value)) {
    BH_ASSIGN_OR_RETURN(value, ParseCount(text));
  }
  if (value < min || value > max) return outside();
  return value;
}

Flags::Apply RealValue(std::optional<float>* out, double min, double max, Border at_min) {
  return [=](const std::string& text) -> absl::Status {
    double value = 0;
    if (!absl::SimpleAtod(text, &value)) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a number"));
    }
    const bool above = at_min == Border::kIncluded ? value >= min : value > min;
    if (!above || !(value <= max)) {  // a NaN is in no range
      return absl::InvalidArgumentError(absl::StrCat(
          text, " is out of range: ", at_min == Border::kIncluded ? "at least " : "more than ", min,
          ", at most ", max));
    }
    *out = static_cast<float>(value);
    return absl::OkStatus();
  };
}

Flags::Apply SeedValue(std::optional<uint64_t>* out) {
  return [=](const std::string& text) -> absl::Status {
    uint64_t value = 0;
    if (!absl::SimpleAtoi(text, &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "' is no seed: a whole number from 0 to 18446744073709551615"));
    }
    *out = value;
    return absl::OkStatus();
  };
}

Flags::Apply DurationValue(absl::Duration* out) {
  return [=](const std::string& text) -> absl::Status {
    BH_ASSIGN_OR_RETURN(*out, ParseSeconds(text));
    return absl::OkStatus();
  };
}

Flags::Apply DurationValue(std::optional<absl::Duration>* out) {
  return [=](const std::string& text) -> absl::Status {
    BH_ASSIGN_OR_RETURN(*out, ParseSeconds(text));
    return absl::OkStatus();
  };
}

Flags::Apply DTypeValue(std::optional<DType>* out) {
  return [=](const std::string& text) -> absl::Status {
    if (text == "auto") {
      out->reset();
      return absl::OkStatus();
    }
    const absl::StatusOr<DType> value = ParseDType(text);
    if (!value.ok())
      return NotOneOf(text, {"auto", "float32 (f32)", "bfloat16 (bf16)", "float16 (f16)"});
    *out = *value;
    return absl::OkStatus();
  };
}

Flags::Apply TextValue(std::string* out) {
  return [=](const std::string& text) -> absl::Status {
    if (text.empty()) return absl::InvalidArgumentError("the value is empty");
    *out = text;
    return absl::OkStatus();
  };
}

Flags::Apply TextValue(std::optional<std::string>* out) {
  return [=](const std::string& text) -> absl::Status {
    if (text.empty()) return absl::InvalidArgumentError("the value is empty");
    *out = text;
    return absl::OkStatus();
  };
}

Flags::Apply TextListValue(std::vector<std::string>* out) {
  return [=](const std::string& text) -> absl::Status {
    if (text.empty()) return absl::InvalidArgumentError("the value is empty");
    out->push_back(text);
    return absl::OkStatus();
  };
}

absl::Status NotOneOf(const std::string& text, const std::vector<std::string>& names) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is none of ", absl::StrJoin(names, ", ")));
}

}  // namespace bulkhead
