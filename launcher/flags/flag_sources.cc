// The sources of flags that are not on the command line, and the output of --print-config.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "CLI/App.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "base/utf8.h"
#include "launcher/flags/command_flags.h"
#include "launcher/flags/config_file.h"
#include "launcher/flags/flags.h"
#include "launcher/flags/foreign_flags.h"

namespace bulkhead {
namespace {

constexpr size_t kOriginColumn = 34;

std::string InOneLine(const std::string& text) {
  return IsValidUtf8(text) ? absl::Utf8SafeCEscape(text) : absl::CHexEscape(text);
}

}  // namespace

std::string Flags::Flag::ValueBy(const std::string& name, const std::string& value) const {
  bool on = false;
  // Other values are reported with their origin when they are applied.
  if (!value_name.empty() || !absl::SimpleAtob(value, &on)) return value;
  return on == !absl::StrContains(names, "!" + name) ? "true" : "false";
}

void Flags::AddEnvironment() {
  for (size_t i = 0; i < flags_.size(); ++i) {
    for (const std::string& name : flags_[i].Names()) {
      if (!absl::StartsWith(name, "--") || !given_[i].values.empty()) continue;
      const std::string variable = EnvironmentNameOf(name);
      const char* const value = std::getenv(variable.c_str());
      if (value != nullptr) given_[i] = {{flags_[i].ValueBy(name, value)}, variable};
    }
  }
  if (!follows_rank0()) WarnOfMisspeltEnvironment(LongNames());
}

absl::Status Flags::AddFile(const std::string& path, bool of_environment, const CLI::App& app,
                            const std::vector<CLI::Option*>& options) {
  // mpirun gives every rank the same arguments, but not the file.
  if (follows_rank0() && !std::filesystem::exists(path)) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(const std::vector<ConfigEntry> entries, ReadConfigFile(path));
  std::map<size_t, const ConfigEntry*> seen;  // by flag
  for (const ConfigEntry& entry : entries) {
    const CLI::Option* const option = app.get_option_no_throw(entry.flag);
    const auto flag = std::find(options.begin(), options.end(), option);
    if (flag == options.end()) {
      const std::vector<std::string> names = LongNames();
      if (absl::c_linear_search(names, entry.flag)) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ":", entry.line, ": '", entry.flag.substr(2),
                         "' can be given only on the command line; leave it out"));
      }
      // The environment's file is shared by all commands.
      if (of_environment && IsFlagOfAnyCommand(entry.flag)) continue;
      const absl::string_view hint = HintOfForeignFlag(entry.flag, names);
      const std::string nearest = Nearest(entry.flag, names);
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", entry.line, ": unknown key ", entry.flag.substr(2), " of 'bulkhead ", command_,
          "'",
          !hint.empty()     ? absl::StrCat(": ", absl::StrReplaceAll(hint, {{"--", ""}}))
          : nearest.empty() ? ""
                            : absl::StrCat("; did you mean ", nearest.substr(2), "?")));
    }
    const size_t i = flag - options.begin();
    const auto [first, is_first] = seen.emplace(i, &entry);
    if (!is_first) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", entry.line, ": '", entry.flag.substr(2), "' is another name of '",
          first->second->flag.substr(2), "' in line ", first->second->line, "; give one"));
    }
    Given& one = given_[i];
    if (!one.values.empty()) continue;
    one = {entry.values, absl::StrCat("file ", path, ":", entry.line)};
    // If a flag does not collect its values, only the last one would count.
    if (!flags_[i].apply.appends) one.values = {absl::StrJoin(entry.values, ",")};
    for (std::string& value : one.values) value = flags_[i].ValueBy(entry.flag, value);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Flags::ConfigText() const {
  std::string text;
  for (size_t i = 0; i < flags_.size(); ++i) {
    if (flags_[i].hidden) continue;
    const std::string key = flags_[i].Name().substr(2);
    std::string line;
    if (given_[i].values.empty()) {
      line = absl::StrCat("# ", key);
    } else {
      std::vector<std::string> quoted;
      for (const std::string& value : given_[i].values) {
        if (!IsValidUtf8(value)) {
          return absl::InvalidArgumentError(absl::StrCat(
              flags_[i].Name(), ": \"", absl::CHexEscape(value),
              "\" is not UTF-8, as a config file must be; leave --print-config out, or rename it"));
        }
        quoted.push_back(TomlString(value));
      }
      line = absl::StrCat(
          key, " = ",
          quoted.size() == 1 ? quoted[0] : absl::StrCat("[", absl::StrJoin(quoted, ", "), "]"));
    }
    line.resize(std::max(line.size() + 2, kOriginColumn), ' ');
    absl::StrAppend(&text, line, "# ",
                    given_[i].values.empty() ? "default" : InOneLine(given_[i].origin), "\n");
  }
  return text;
}

}  // namespace bulkhead
