// The flags of one command: declared once with their help, parsed by CLI11; errors suggest the
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

class Flags {
 public:
  // Handles one value as written; an error's message becomes "--flag: message".
  using Apply = std::function<absl::Status(const std::string& value)>;

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

  // True if help was requested. INVALID_ARGUMENT for parse errors.
  absl::StatusOr<bool> Parse(absl::Span<const std::string> args) const;
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

  std::string command_, usage_, summary_, example_;
  std::string group_;
  std::vector<Flag> flags_;
  Positional positional_;
};

// The candidate most similar to `word`; empty if none is near.
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace bulkhead
