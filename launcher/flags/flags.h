// The flags of one command: declared once with their help, parsed by CLI11, refused with the
// nearest name. A flag that the command line does not give is taken from the environment
// (BULKHEAD_MAX_NUM_SEQS), else from --config FILE.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead {

// The argument that asks any command for its help as JSON.
inline constexpr absl::string_view kHelpAsJson = "--help=json";

class Flags {
 public:
  // Handles one value as written; an error's message becomes "--flag: message".
  struct Apply : std::function<absl::Status(const std::string& value)> {
    using function::function;
    // What a value may be, for documents and shell completion; empty: the help's text says it.
    std::vector<std::string> choices;
    std::string range;
  };

  // `usage` and `example` are shown in the help after the program's name.
  Flags(std::string command, std::string usage, std::string summary, std::string example);

  // Subsequent flags are listed under this title in the help.
  void Group(std::string title);
  // `names`: "--max-num-seqs,--max-batch-size", the first one is the primary name. If repeated, the
  // last value wins, unless `apply` collects them.
  void Add(const std::string& names, const std::string& value_name, const std::string& help,
           Apply apply);
  void AddHidden(const std::string& name, Apply apply);
  // A flag without a value; "--name=false" resets it.
  void AddSwitch(const std::string& names, const std::string& help,
                 std::function<void(bool)> apply);
  // Arguments without a flag; at most `limit` of them.
  void AddPositional(const std::string& value_name, int limit, Apply apply);

  // True when there is something to print instead: Help(). INVALID_ARGUMENT for whatever does not
  // parse.
  absl::StatusOr<bool> Parse(absl::Span<const std::string> args);
  // The help; as one JSON object where Parse was given kHelpAsJson; after --print-config every
  // flag's value and where it comes from, as a --config file.
  std::string Help() const;

 private:
  struct Flag {
    std::string names;
    std::string value_name;  // empty: a switch
    std::string help;
    std::string group;
    Apply apply;
    bool hidden = false;
  };
  struct Positional {
    std::string value_name;
    int limit = 0;
    Apply apply;
  };

  // What a flag was given, and by whom.
  struct Given {
    std::vector<std::string> values;  // empty: the default
    std::string origin;               // "flag", "BULKHEAD_...", "file NAME"
  };

  absl::StatusOr<std::vector<Given>> Resolve(const std::vector<Given>& of_command_line,
                                             const std::string& config_path) const;
  std::string ConfigText(const std::vector<Given>& given) const;
  absl::Status CheckNames(absl::Span<const std::string> args) const;
  absl::Status ApplyPositionals(const std::vector<std::string>& rest) const;
  std::vector<std::string> Names() const;
  std::vector<Flag> ListedFlags() const;  // what the help shows
  std::string HelpJson() const;

  bool help_as_json_ = false;
  std::string command_, usage_, summary_, example_;
  std::string config_text_;  // after --print-config
  std::string group_;
  std::vector<Flag> flags_;
  Positional positional_;
};

// The candidate most similar to `word`; empty if none is near.
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace bulkhead
