// The flags of one command: declared once with their help, parsed by CLI11, refused with the
// nearest name. A flag that the command line does not give is taken from the environment
// (BULKHEAD_MAX_NUM_SEQS), else from --config FILE.
//
// The ranks of a group take flags that they are not given themselves from rank 0 (launcher/group/
// group_flags.h): a rank other than the first may lack the file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace bulkhead {

// The argument that asks any command for its help as JSON.
inline constexpr absl::string_view kHelpAsJson = "--help=json";
// The argument that says that environment and file are among the arguments already.
inline constexpr absl::string_view kResolved = "--resolved";

class Flags {
 public:
  // Handles one value as written; an error's message becomes "--flag: message".
  struct Apply : std::function<absl::Status(const std::string& value)> {
    using function::function;
    // Accepted values, for documents and shell completion; empty: described in the help text.
    std::vector<std::string> choices;
    std::string range;
    bool appends = false;  // repeated values are collected
    // Whether `word`, after a value in a separate word, is another value; null: never.
    bool (*takes_next)(absl::string_view word) = nullptr;
  };

  // `usage` and `example` are shown in the help after the program's name.
  Flags(std::string command, std::string usage, std::string summary, std::string example);

  // Subsequent flags are listed under this title in the help.
  void Group(std::string title);
  // `names`: "--max-num-seqs,--max-batch-size", the first one is the primary name. If repeated, the
  // last value wins, unless `apply` appends them.
  void Add(const std::string& names, const std::string& value_name, const std::string& help,
           Apply apply);
  void AddHidden(const std::string& name, Apply apply);
  // A flag without a value; "--name=false" resets it, and so does a name that begins with "!".
  void AddSwitch(const std::string& names, const std::string& help,
                 std::function<void(bool)> apply);
  void AddSwitch(const std::string& names, const std::string& help, bool* on);
  // Arguments without a flag, at most `limit` of them, are values of the flag `name`.
  void AddPositional(const std::string& name, int limit);
  // The arguments are a rank's.
  void OfGroup() { of_group_ = true; }

  // True if Help() is to be printed instead of running. INVALID_ARGUMENT if the arguments do not
  // parse.
  absl::StatusOr<bool> Parse(absl::Span<const std::string> args);
  // The help; as one JSON object if Parse was given kHelpAsJson; after --print-config the given
  // flags' values and where they come from, as a --config file with all others as comments.
  std::string Help() const;

  const std::string& command() const { return command_; }
  // Whether this process is a rank that takes missing flags from rank 0.
  bool follows_rank0() const;
  // After Parse: the command, kResolved, and "--flag=value" for everything that was given, from any
  // source.
  std::vector<std::string> Resolved() const;

 private:
  struct Flag {
    std::string names;
    std::string value_name;  // empty: a switch
    std::string help;
    std::string group;
    Apply apply;
    bool hidden = false;

    std::string Name() const;  // "--max-num-seqs" for "--max-num-seqs,--max-batch-size"
    std::vector<std::string> Names() const;  // without the "!" of names that switch off
    // `value` as for the first name: a switch's opposite if `name` switches off.
    std::string ValueBy(const std::string& name, const std::string& value) const;
  };

  // The values given to a flag, and their source.
  struct Given {
    std::vector<std::string> values;  // empty: the default
    std::string origin;               // "flag", "BULKHEAD_...", "file NAME"
  };

  // "--list a=b c=d" -> "--list a=b --list=c=d", by Apply::takes_next.
  void SplitLists(std::vector<std::string>& args) const;
  // Fill given_; `options` are CLI11's for flags_.
  absl::Status AddPositionals(const std::vector<std::string>& rest);
  void AddEnvironment();
  // `of_environment`: from BULKHEAD_CONFIG, where keys of other commands are ignored.
  absl::Status AddFile(const std::string& path, bool of_environment, const CLI::App& app,
                       const std::vector<CLI::Option*>& options);
  absl::Status ApplyAll() const;
  absl::StatusOr<std::string> ConfigText() const;
  absl::Status CheckNames(absl::Span<const std::string> args) const;
  // The spelling that switches as `name` says ("--no-", "--disable-" or "--enable-" with a switch's
  // letters); empty if no switch has these letters.
  std::string NegationOf(absl::string_view name) const;
  std::vector<std::string> Names() const;
  std::vector<std::string> LongNames() const;  // names with two dashes
  std::vector<Flag> ListedFlags() const;       // flags shown in the help
  std::string HelpJson() const;

  bool help_as_json_ = false;
  std::string command_, usage_, summary_, example_;
  std::string config_text_;  // after --print-config
  std::string group_;
  std::vector<Flag> flags_;
  std::vector<Given> given_;  // by flag
  std::string positional_;    // name of the positional flag
  int max_positionals_ = 0;
  bool of_group_ = false;
};

// The candidate most similar to `word`; empty if none is near. Never --help, and never an enabling
// name for a disabling one.
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace bulkhead
