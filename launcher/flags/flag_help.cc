// The help of a command, as text and as JSON.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/flags/flags.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

constexpr size_t kHelpColumn = 34;
constexpr size_t kHelpWidth = 96;

// Appends `text` wrapped at kHelpColumn; the first line's indentation is already there.
void AppendWrapped(absl::string_view text, std::string* out) {
  size_t column = kHelpColumn;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (column > kHelpColumn && column + 1 + word.size() > kHelpWidth) {
      absl::StrAppend(out, "\n", std::string(kHelpColumn, ' '));
      column = kHelpColumn;
    } else if (column > kHelpColumn) {
      absl::StrAppend(out, " ");
      ++column;
    }
    absl::StrAppend(out, word);
    column += word.size();
  }
  absl::StrAppend(out, "\n");
}

}  // namespace

std::vector<Flags::Flag> Flags::ListedFlags() const {
  std::vector<Flag> listed;
  std::copy_if(flags_.begin(), flags_.end(), std::back_inserter(listed),
               [](const Flag& flag) { return !flag.hidden; });
  listed.push_back({"--config", "FILE",
                    "a TOML file of flags, such as max-num-seqs = 4; the command line and the "
                    "environment (BULKHEAD_MAX_NUM_SEQS=4) take precedence",
                    "Configuration", Apply(), false});
  listed.push_back(
      {"--print-config", "",
       "print the flags that were given with their values and where they come from, as a "
       "file for --config with all others as comments, and end",
       "Configuration", Apply(), false});
  return listed;
}

std::string Flags::HelpJson() const {
  nlohmann::ordered_json flags = nlohmann::ordered_json::array();
  for (const Flag& flag : ListedFlags()) {
    flags.push_back({{"group", flag.group},
                     {"names", flag.Names()},
                     {"value", flag.value_name},
                     {"help", flag.help},
                     {"choices", flag.apply.choices},
                     {"range", flag.apply.range}});
  }
  return nlohmann::ordered_json{{"command", command_},
                                {"usage", usage_},
                                {"summary", summary_},
                                {"example", example_},
                                {"flags", std::move(flags)}}
      .dump();
}

std::string Flags::Help() const {
  if (!config_text_.empty()) return config_text_;
  if (help_as_json_) return HelpJson();
  std::string out = absl::StrCat(summary_, "\n\nUsage: bulkhead ", command_, " ", usage_, "\n");
  std::string group;
  for (const Flag& flag : ListedFlags()) {
    if (flag.group != group) {
      group = flag.group;
      absl::StrAppend(&out, "\n", group, ":\n");
    }
    const std::vector<std::string> names = flag.Names();
    std::string left = absl::StrCat("  ", names[0]);
    if (!flag.value_name.empty()) absl::StrAppend(&left, " ", flag.value_name);
    std::string help = flag.help;
    for (size_t i = 1; i < names.size(); ++i)
      absl::StrAppend(&help, i == 1 ? " [also " : ", ", names[i]);
    if (names.size() > 1) help += "]";
    if (left.size() + 2 > kHelpColumn) {
      absl::StrAppend(&out, left, "\n", std::string(kHelpColumn, ' '));
    } else {
      absl::StrAppend(&out, left, std::string(kHelpColumn - left.size(), ' '));
    }
    AppendWrapped(help, &out);
  }
  absl::StrAppend(&out, "\nExample:\n  ", absl::StrReplaceAll(example_, {{"\n", "\n  "}}), "\n");
  return out;
}

}  // namespace bulkhead
