// The flags of one command: declared once with their help, parsed by CLI11, refused with the
// nearest name.
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
  // Takes one value as it was written; a failure's message becomes "--flag: message".
  struct Apply : std::function<absl::Status(const std::string& value)> {
    using function::function;
    // What a value may be, for documents and shell completion; empty: the help's text says it.
    std::vector<std::string> choices;
    std::string range;
  };

  // `usage` and `example` are what the help shows behind the program's name.
  Flags(std::string command, std::string usage, std::string summary, std::string example);

  // Flags added from now on stand below this title in the help.
  void Group(std::string title);
  // `names`: "--max-num-seqs,--max-batch-size", the first one being the flag's own. Given twice,
  // the last value wins, unless `apply` collects them.
  void Add(const std::string& names, const std::string& value_name, const std::string& help,
           Apply apply);
  void AddHidden(const std::string& name, Apply apply);
  // A flag without a value; "--name=false" takes it back.
  void AddSwitch(const std::string& names, const std::string& help,
                 std::function<void(bool)> apply);
  // What stands without a flag; at most `limit` of them.
  void AddPositional(const std::string& value_name, int limit, Apply apply);

  // True when the help was asked for. INVALID_ARGUMENT for whatever does not parse.
  absl::StatusOr<bool> Parse(absl::Span<const std::string> args);
  // As text, or as one JSON object where Parse was given kHelpAsJson.
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

  absl::Status CheckNames(absl::Span<const std::string> args) const;
  absl::Status ApplyPositionals(const std::vector<std::string>& rest) const;
  std::vector<std::string> Names() const;
  std::string HelpJson() const;

  bool help_as_json_ = false;
  std::string command_, usage_, summary_, example_;
  std::string group_;
  std::vector<Flag> flags_;
  Positional positional_;
};

// The candidate that `word` was most likely meant to be; empty when none is near.
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace bulkhead
