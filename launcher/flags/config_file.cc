#include "launcher/flags/config_file.h"

#include <sstream>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "base/whole_file.h"

namespace bulkhead {

absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path) {
  BH_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  std::vector<ConfigEntry> entries;
  try {
    std::istringstream in(text);
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(in)) {
      if (!item.parents.empty() || item.name == "++" || item.name == "--") {
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": '", item.fullname(), "': sections are not known; write flags as keys"));
      }
      entries.push_back(
          {absl::StrCat("--", absl::StrReplaceAll(item.name, {{"_", "-"}})), item.inputs});
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

}  // namespace bulkhead
