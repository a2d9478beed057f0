#include "launcher/flags/config_file.h"

#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status.h"
#include "base/whole_file.h"

namespace bulkhead {
namespace {

// Letters of a name that make it long enough to tell a slip from another name.
constexpr size_t kMinName = 6;
// Variables that are no flags.
constexpr absl::string_view kVariables[] = {"API_KEY", "CONFIG",    "CUBLASLT", "EARLY_LAUNCH",
                                            "NCCL",    "NODE_NAME", "ONE_SHOT", "PYTHON"};

// Replaces strings of several lines by empty ones, which CLI11 reads; `strings` gets their texts,
// by the keys' names as of flags.
absl::StatusOr<std::string> TakeLongStrings(const std::string& path, absl::string_view text,
                                            std::map<std::string, std::string>* strings) {
  std::string rest;
  while (!text.empty()) {
    const absl::string_view line = text.substr(0, text.find('\n'));
    const size_t equals = line.find('=');
    const size_t value = line.find_first_not_of(" \t", equals == line.npos ? equals : equals + 1);
    const absl::string_view quotes = value == line.npos ? "" : line.substr(value, 3);
    const bool is_long = absl::StripLeadingAsciiWhitespace(line).substr(0, 1) != "#" &&
                         (quotes == "'''" || quotes == R"(""")");
    if (!is_long) {
      absl::StrAppend(&rest, line, "\n");
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      continue;
    }
    const std::string key(absl::StripAsciiWhitespace(line.substr(0, equals)));
    text.remove_prefix(value + quotes.size());
    const size_t end = text.find(quotes);
    if (end == text.npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": '", key, "': its string has no end; close it with ", quotes));
    }
    absl::string_view body = text.substr(0, end);
    if (quotes[0] == '"' && absl::StrContains(body, '\\')) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": '", key, "': backslashes are not known in ", quotes, "; write ''' instead"));
    }
    absl::ConsumePrefix(&body, "\r");
    absl::ConsumePrefix(&body, "\n");  // directly behind the quotes it does not count
    strings->emplace(absl::StrReplaceAll(key, {{"_", "-"}}), body);
    text.remove_prefix(end + quotes.size());
    absl::StrAppend(&rest, key, " = \"\"");  // what follows on its line is a comment, or wrong
  }
  return rest;
}

// TOML allows a key once; CLI11 would join the values of lines that follow each other.
absl::Status RefuseKeysGivenTwice(const std::string& path, const std::string& text) {
  std::set<std::string> seen;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view key =
        absl::StripAsciiWhitespace(line.substr(0, std::min(line.size(), line.find('='))));
    const bool is_key =
        key.size() < line.size() && !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
          return absl::ascii_isalnum(c) || c == '-' || c == '_';
        });
    if (!is_key || !absl::StrContains(line, '=')) continue;
    if (seen.insert(absl::StrReplaceAll(key, {{"_", "-"}})).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": '", key, "' is given twice; write several values as a list"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path) {
  BH_ASSIGN_OR_RETURN(const std::string whole, ReadWholeFile(path));
  std::map<std::string, std::string> long_strings;
  BH_ASSIGN_OR_RETURN(const std::string text, TakeLongStrings(path, whole, &long_strings));
  BH_RETURN_IF_ERROR(RefuseKeysGivenTwice(path, text));
  std::vector<ConfigEntry> entries;
  try {
    std::istringstream in(text);
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(in)) {
      if (!item.parents.empty() || item.name == "++" || item.name == "--") {
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": '", item.fullname(), "': sections are not known; write flags as keys"));
      }
      const std::string name = absl::StrReplaceAll(item.name, {{"_", "-"}});
      const auto found = long_strings.find(name);
      entries.push_back({absl::StrCat("--", name),
                         found == long_strings.end() ? item.inputs : std::vector{found->second}});
    }
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
  }
  return entries;
}

std::string EnvironmentNameOf(const std::string& flag) {
  return absl::StrCat("BULKHEAD_", absl::AsciiStrToUpper(absl::StrReplaceAll(
                                       absl::string_view(flag).substr(2), {{"-", "_"}})));
}

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

void WarnOfMisspeltEnvironment(const std::vector<std::string>& names) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    absl::string_view variable(*entry, std::strcspn(*entry, "="));
    absl::string_view name = variable;
    if (!absl::ConsumePrefix(&name, "BULKHEAD_") || name.size() < kMinName) continue;
    if (std::find(std::begin(kVariables), std::end(kVariables), name) != std::end(kVariables)) {
      continue;
    }
    const auto nearest = std::min_element(names.begin(), names.end(), [&](auto& a, auto& b) {
      return EditDistance(variable, EnvironmentNameOf(a)) <
             EditDistance(variable, EnvironmentNameOf(b));
    });
    if (nearest == names.end()) continue;
    const std::string meant = EnvironmentNameOf(*nearest);
    const size_t distance = EditDistance(variable, meant);
    if (distance < 1 || distance > 2) continue;
    BH_LOG(kWarning) << "the environment's " << variable << " is no flag's; did you mean " << meant
                     << "?";
  }
}

}  // namespace bulkhead
