// Parsers of flag values: each returns a Flags::Apply that validates a value and stores it in
// `out`, which outlives the parse. Error messages contain the value and the limit.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "launcher/flags/flags.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// An integer in [min, max]; accepts 32k and 4GiB (base/bytes.h).
absl::StatusOr<int64_t> ParseInteger(const std::string& text, int64_t min, int64_t max);

// `apply` with documentation of its values: the accepted words, or the limits of a number ("1 to
// 64", or "at least 1" if `max` is the type's limit).
Flags::Apply WithChoices(Flags::Apply apply, std::vector<std::string> choices);
Flags::Apply WithRange(Flags::Apply apply, int64_t min, int64_t max);
enum class Border { kIncluded, kExcluded };
Flags::Apply WithRange(Flags::Apply apply, double min, double max, Border at_min);

absl::Status NotOneOf(const std::string& text, const std::vector<std::string>& names);

// Stores the result of `parse`.
template <typename Out, typename Parse>
Flags::Apply ParsedValue(Out* out, Parse parse) {
  return [=](const std::string& text) -> absl::Status {
    auto value = parse(text);
    if (value.ok()) *out = *std::move(value);
    return value.status();
  };
}

// The same; "auto" means not given.
template <typename T, typename Parse>
Flags::Apply OptionalValue(std::optional<T>* out, Parse parse) {
  return [=](const std::string& text) -> absl::Status {
    if (text != "auto") return ParsedValue(out, parse)(text);
    out->reset();
    return absl::OkStatus();
  };
}

template <typename T>
Flags::Apply IntegerValue(T* out, int64_t min, int64_t max) {
  return WithRange(ParsedValue(out, [=](const auto& text) { return ParseInteger(text, min, max); }),
                   min, max);
}
// "auto" means not given.
template <typename T>
Flags::Apply IntegerValue(std::optional<T>* out, int64_t min, int64_t max) {
  return WithRange(
      OptionalValue(out, [=](const auto& text) { return ParseInteger(text, min, max); }), min, max);
}

// A finite number in [min, max], or (min, max].
absl::StatusOr<double> ParseReal(const std::string& text, double min, double max, Border at_min);
template <typename Out>
Flags::Apply RealValue(Out* out, double min, double max, Border at_min) {
  return WithRange(
      ParsedValue(out, [=](const auto& text) { return ParseReal(text, min, max, at_min); }), min,
      max, at_min);
}
// A finite decimal number, without surrounding text.
absl::StatusOr<double> ParseDecimal(absl::string_view text);
// 0 to 65535, digits only.
Flags::Apply PortValue(int* out);
// All 64 bits, in decimal.
absl::StatusOr<uint64_t> ParseSeed(const std::string& text);
template <typename Out>
Flags::Apply SeedValue(Out* out) {
  return ParsedValue(out, &ParseSeed);
}
// Seconds, or a duration with units ("90s", "2m"); positive, at most a week.
absl::StatusOr<absl::Duration> ParseSeconds(const std::string& text);
template <typename Out>
Flags::Apply DurationValue(Out* out) {
  return ParsedValue(out, &ParseSeconds);
}
// "auto", or what `parse` knows: `names`, and shorter spellings of them.
template <typename T>
Flags::Apply NamedValue(std::optional<T>* out, absl::StatusOr<T> (*parse)(absl::string_view),
                        std::vector<std::string> names) {
  names.insert(names.begin(), "auto");
  const auto known = [=](const std::string& text) -> absl::StatusOr<T> {
    absl::StatusOr<T> value = parse(text);
    return value.ok() ? value : absl::StatusOr<T>(NotOneOf(text, names));
  };
  return WithChoices(OptionalValue(out, known), names);
}
// A size for all ranks, or a list "0=4GiB,1=2GiB"; "auto" means not given.
Flags::Apply RankSizesValue(std::optional<RankSizes>* out, int64_t min);
// "2,1,1", or "auto".
Flags::Apply SharesValue(std::vector<int64_t>* out, bool* automatic);
// auto, off, or a list of nodes.
Flags::Apply NumaValue(NumaOption* out);
// "0.8": a share of what is free after the weights; "100", without a point: blocks.
Flags::Apply EntryCountValue(std::optional<KvRule>* out);
// A list as in "1,8,16".
template <typename T, typename Parse>
Flags::Apply ListValue(std::vector<T>* out, Parse parse) {
  return [=](const std::string& text) -> absl::Status {
    std::vector<T> values;
    for (const absl::string_view part : absl::StrSplit(text, ',')) {
      BH_ASSIGN_OR_RETURN(values.emplace_back(), parse(std::string(part)));
    }
    *out = std::move(values);
    return absl::OkStatus();
  };
}
Flags::Apply IntegersValue(std::vector<int>* out, int min, int max);
// Any non-empty text.
absl::StatusOr<std::string> ParseText(const std::string& text);
template <typename Out>
Flags::Apply TextValue(Out* out) {
  return ParsedValue(out, &ParseText);
}
// A model, once. `hint` follows the refusal of a second one.
Flags::Apply ModelValue(std::string* model, const std::string& hint = "");
// One whose values are collected.
inline Flags::Apply Appending(Flags::Apply apply) {
  apply.appends = true;
  return apply;
}
Flags::Apply TextListValue(std::vector<std::string>* out);

template <typename T>
Flags::Apply ChoiceValue(T* out, const std::vector<std::pair<std::string, T>>& choices) {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.push_back(choice.first);
  const auto apply = [=](const std::string& text) -> absl::Status {
    for (const auto& [name, value] : choices) {
      if (text != name) continue;
      *out = value;
      return absl::OkStatus();
    }
    return NotOneOf(text, names);
  };
  return WithChoices(apply, names);
}

// The same; "auto" means not given.
template <typename T>
Flags::Apply OptionalChoiceValue(std::optional<T>* out,
                                 const std::vector<std::pair<std::string, T>>& choices) {
  std::vector<std::pair<std::string, std::optional<T>>> all = {{"auto", std::nullopt}};
  all.insert(all.end(), choices.begin(), choices.end());
  return ChoiceValue(out, all);
}

}  // namespace bulkhead
