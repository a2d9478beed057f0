#include "launcher/flags/config_file.h"

#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/edit_distance.h"
#include "base/log.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/whole_file.h"
#include "launcher/flags/command_flags.h"
#include "toml++/toml.h"

namespace bulkhead {
namespace {

// The parser's tree is as deep as a key has dots, and is destroyed recursively.
constexpr size_t kMostBytes = size_t{64} << 10;
// Minimum letters of a name for one typo, or two, to be told from another name.
constexpr size_t kMinName = 4;
constexpr size_t kMinNameOfTwoSlips = 6;
// Variables that are no flags.
constexpr absl::string_view kVariables[] = {"API_KEY",      "CONFIG", "CUBLASLT",
                                            "EARLY_LAUNCH", "NCCL",   "NODE_NAME",
                                            "ONE_SHOT",     "PYTHON", "WARPGROUPS"};

absl::Status WrongAt(absl::string_view path, size_t line, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": ", why));
}

absl::string_view LineAt(absl::string_view text, size_t number) {
  for (; number > 1 && !text.empty(); --number) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return text.substr(0, text.find('\n'));
}

// The number as written, without _: 1e9, inf.
std::string NumberAt(absl::string_view text, const toml::source_position& at) {
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  absl::string_view number = LineAt(text, at.line);
  number.remove_prefix(ByteOfChar(number, at.column - 1));  // columns are characters
  return absl::StrReplaceAll(number.substr(0, number.find_first_of(" \t\r,]#")), {{"_", ""}});
}

// As on the command line; none for a section, a date or a list.
std::optional<std::string> TextOf(const toml::node& value, absl::string_view file) {
  if (const auto* text = value.as_string()) return text->get();
  if (const auto* number = value.as_integer()) return absl::StrCat(number->get());
  if (value.is_floating_point()) return NumberAt(file, value.source().begin);
  if (const auto* on = value.as_boolean()) return on->get() ? "true" : "false";
  return std::nullopt;
}

// The values of a list, or the single value; none if one has no text form.
std::vector<std::string> TextsOf(const toml::node& value, absl::string_view file) {
  std::vector<std::string> texts;
  const auto add = [&](const toml::node& one) {
    std::optional<std::string> text = TextOf(one, file);
    if (text.has_value()) texts.push_back(*std::move(text));
    return text.has_value();
  };
  const toml::array* const list = value.as_array();
  const bool all = list != nullptr ? std::all_of(list->begin(), list->end(), add) : add(value);
  if (!all) texts.clear();
  return texts;
}

}  // namespace

absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path) {
  BH_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostBytes));
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    const size_t line = error.source().begin.line;
    // Shortened for the message.
    const auto written = absl::StripAsciiWhitespace(LineAt(text, line)).substr(0, 80);
    const std::string why(error.description());
    return WrongAt(path, line,
                   absl::StrCat("'", written, "' is not TOML (",
                                absl::StripPrefix(why, "Error while parsing "),
                                "); write a text in quotes, and each key once"));
  }
  std::vector<ConfigEntry> entries;
  std::set<std::string> seen;
  for (const auto& [key, value] : table) {
    const size_t line = key.source().begin.line;
    const std::string written(key.str()), name = absl::StrReplaceAll(written, {{"_", "-"}});
    if (name.empty()) return WrongAt(path, line, "the key is empty; write NAME = VALUE");
    std::vector<std::string> values = TextsOf(value, text);
    if (values.empty()) {
      return WrongAt(
          path, line,
          absl::StrCat("'", written,
                       "' is not a flag's value; write a text in quotes, a number, true, "
                       "false, or a list of these; sections are not supported"));
    }
    if (!seen.insert(name).second) {
      return WrongAt(path, line,
                     absl::StrCat("'", written,
                                  "' is given twice, with - and with _; write several values as a "
                                  "list"));
    }
    entries.push_back({absl::StrCat("--", name), std::move(values), line});
  }
  std::sort(entries.begin(), entries.end(),
            [](const ConfigEntry& a, const ConfigEntry& b) { return a.line < b.line; });
  return entries;
}

std::string TomlString(const std::string& text) {
  std::ostringstream out;
  const toml::value<std::string> value(text);
  out << toml::toml_formatter(value, toml::format_flags::allow_unicode_strings);
  return out.str();
}

std::string EnvironmentNameOf(const std::string& flag) {
  return absl::StrCat("BULKHEAD_", absl::AsciiStrToUpper(absl::StrReplaceAll(
                                       absl::string_view(flag).substr(2), {{"-", "_"}})));
}

void WarnOfMisspeltEnvironment(const std::vector<std::string>& names) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    absl::string_view variable(*entry, std::strcspn(*entry, "="));
    absl::string_view name = variable;
    if (!absl::ConsumePrefix(&name, "BULKHEAD_") || name.size() < kMinName) continue;
    const std::string flag =
        absl::StrCat("--", absl::AsciiStrToLower(absl::StrReplaceAll(name, {{"_", "-"}})));
    if (absl::c_linear_search(kVariables, name) || IsFlagOfAnyCommand(flag)) continue;
    const size_t most = name.size() < kMinNameOfTwoSlips ? 1 : 2;
    std::string meant;
    size_t least = most + 1;
    const auto consider = [&](const std::string& candidate) {
      const size_t distance = EditDistance(variable, candidate);
      if (distance < least) meant = candidate;
      least = std::min(least, distance);
    };
    for (const std::string& flag : names) consider(EnvironmentNameOf(flag));
    for (const absl::string_view other : kVariables) consider(absl::StrCat("BULKHEAD_", other));
    if (least < 1 || least > most) continue;
    BH_LOG(kWarning) << "the environment variable " << variable
                     << " is not known and is ignored; did you mean " << meant << "?";
  }
}

}  // namespace bulkhead
