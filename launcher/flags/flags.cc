#include "launcher/flags/flags.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/edit_distance.h"
#include "base/status.h"
#include "launcher/exit_status.h"
#include "launcher/flags/config_file.h"
#include "launcher/flags/foreign_flags.h"

namespace bulkhead {
namespace {

// "--max_num_seqs=4" -> "--max-num-seqs=4", and vLLM's "-tp".
std::string Normalized(const std::string& arg) {
  if (arg == "-tp") return "--tp";
  if (arg.size() < 3 || arg.compare(0, 2, "--") != 0) return arg;
  const size_t end = std::min(arg.find_first_of("= "), arg.size());
  return absl::StrReplaceAll(arg.substr(0, end), {{"_", "-"}}) + arg.substr(end);
}

// Whether CLI11 takes `arg` for a flag's name: not "-", "-4", "- item" or the text "--tp 4".
bool LooksLikeFlag(absl::string_view arg) {
  if (arg.size() < 2 || arg[0] != '-') return false;
  return arg[1] == '-' ? arg.find('=') <= arg.find(' ') : absl::ascii_isalpha(arg[1]);
}

// A name without its dashes, and without what switches on or off.
struct Switch {
  absl::string_view letters;
  bool off = false;
};

Switch SwitchOf(absl::string_view name) {
  while (absl::ConsumePrefix(&name, "-")) {
  }
  const bool off = absl::ConsumePrefix(&name, "no-") || absl::ConsumePrefix(&name, "disable-");
  absl::ConsumePrefix(&name, "enable-");
  return {name, off};
}

}  // namespace

std::vector<std::string> Flags::Flag::Names() const {
  return absl::StrSplit(absl::StrReplaceAll(names, {{"!", ""}}), ',');
}

std::string Flags::Flag::Name() const { return names.substr(0, names.find(',')); }

std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates) {
  const Switch meant = SwitchOf(word);
  const size_t letters = meant.letters.size();
  std::string best;
  // In a short word every letter is significant: --dp is not --tp.
  size_t best_distance = (letters < 4 ? 0 : letters < 6 ? 1 : std::max<size_t>(2, letters / 4)) + 1;
  for (const std::string& candidate : candidates) {
    const Switch other = SwitchOf(candidate);
    if (candidate == "--help" || meant.off != other.off) continue;
    const size_t distance = EditDistance(meant.letters, other.letters);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

Flags::Flags(std::string command, std::string usage, std::string summary, std::string example)
    : command_(std::move(command)),
      usage_(std::move(usage)),
      summary_(std::move(summary)),
      example_(std::move(example)) {}

void Flags::Group(std::string title) { group_ = std::move(title); }

void Flags::Add(const std::string& names, const std::string& value_name, const std::string& help,
                Apply apply) {
  flags_.push_back({names, value_name, help, group_, std::move(apply), false});
}

void Flags::AddHidden(const std::string& name, Apply apply) {
  flags_.push_back({name, "VALUE", "", "", std::move(apply), true});
}

void Flags::AddSwitch(const std::string& names, const std::string& help,
                      std::function<void(bool)> apply) {
  Apply as_text = [apply = std::move(apply)](const std::string& value) {
    bool on = false;
    if (!absl::SimpleAtob(value, &on)) {
      return absl::InvalidArgumentError(absl::StrCat("'", value, "' is neither true nor false"));
    }
    apply(on);
    return absl::OkStatus();
  };
  flags_.push_back({names, "", help, group_, std::move(as_text), false});
}

void Flags::AddSwitch(const std::string& names, const std::string& help, bool* on) {
  AddSwitch(names, help, [on](bool value) { *on = value; });
}

void Flags::AddPositional(const std::string& name, int limit) {
  positional_ = name;
  max_positionals_ = limit;
}

bool Flags::follows_rank0() const { return of_group_ && !IsFirstRank(); }

std::vector<std::string> Flags::Resolved() const {
  std::vector<std::string> args = absl::StrSplit(command_, ' ');
  args.emplace_back(kResolved);
  for (size_t i = 0; i < given_.size(); ++i) {
    for (const std::string& value : given_[i].values) {
      args.push_back(absl::StrCat(flags_[i].Name(), "=", value));
    }
  }
  return args;
}

std::vector<std::string> Flags::Names() const {
  std::vector<std::string> names = {"--help", "-h", "--config", "--print-config"};
  for (const Flag& flag : flags_) {
    for (const std::string& name : flag.Names()) names.push_back(name);
  }
  return names;
}

std::vector<std::string> Flags::LongNames() const {
  std::vector<std::string> names = Names();
  std::erase_if(names, [](const std::string& name) { return !absl::StartsWith(name, "--"); });
  return names;
}

std::string Flags::NegationOf(absl::string_view name) const {
  const Switch meant = SwitchOf(name);
  std::string negation;
  for (const Flag& flag : flags_) {
    if (!flag.value_name.empty()) continue;
    for (const std::string& one : flag.Names()) {
      const Switch other = SwitchOf(one);
      if (meant.letters != other.letters) continue;
      if (meant.off == other.off) return one;
      negation = absl::StrCat(one, "=false");
    }
  }
  return negation;
}

absl::Status Flags::CheckNames(absl::Span<const std::string> args) const {
  const std::vector<std::string> names = Names();
  std::vector<std::string> with_value = {"--config"};
  for (const Flag& flag : flags_) {
    if (flag.value_name.empty()) continue;
    for (const std::string& name : flag.Names()) with_value.push_back(name);
  }
  const auto is_in = [](const std::vector<std::string>& all, const std::string& arg) {
    return std::find(all.begin(), all.end(), arg.substr(0, arg.find('='))) != all.end();
  };
  for (size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    const std::string& arg = args[i];
    if (!LooksLikeFlag(arg)) continue;
    const std::string name = arg.substr(0, arg.find('='));
    if (is_in(names, name)) {
      // CLI11 would take the next argument as the value.
      if (arg.size() == name.size() + 1)
        return absl::InvalidArgumentError(absl::StrCat(name, ": the value is empty"));
      const bool is_last = i + 1 == args.size();
      if (!is_in(with_value, arg) || arg != name || !(is_last || is_in(names, args[i + 1])))
        continue;
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": the value is missing",
          is_last ? "" : absl::StrCat(" before ", args[i + 1], "; write ", name, "=VALUE")));
    }
    const absl::string_view hint = HintOfForeignFlag(name, names);
    if (!hint.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag ", name, " of 'bulkhead ", command_, "': ", hint));
    }
    const std::string negation = NegationOf(name);
    const std::string nearest = negation.empty() ? Nearest(name, LongNames()) : negation;
    return absl::InvalidArgumentError(
        absl::StrCat("unknown flag ", name, " of 'bulkhead ", command_, "'; ",
                     nearest.empty() ? absl::StrCat("see 'bulkhead ", command_, " --help'")
                                     : absl::StrCat("did you mean ", nearest, "?")));
  }
  return absl::OkStatus();
}

void Flags::SplitLists(std::vector<std::string>& args) const {
  const Flag* list = nullptr;
  for (size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    if (LooksLikeFlag(args[i])) {
      const auto named = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& flag) {
        return flag.apply.takes_next != nullptr && flag.names == args[i];
      });
      list = named == flags_.end() ? nullptr : &*named;
      if (list != nullptr) ++i;  // its first value
    } else if (list != nullptr && list->apply.takes_next(args[i])) {
      args[i] = absl::StrCat(list->names, "=", args[i]);
    } else {
      list = nullptr;
    }
  }
}

absl::StatusOr<bool> Flags::Parse(absl::Span<const std::string> args) {
  help_as_json_ = std::find(args.begin(), args.end(), kHelpAsJson) != args.end();
  if (help_as_json_) return true;
  std::vector<std::string> normalized;
  bool names_may_come = true;
  bool resolved = false;
  for (const std::string& arg : args) {
    resolved = resolved || arg == kResolved;
    if (arg == kResolved) continue;
    normalized.push_back(names_may_come ? Normalized(arg) : arg);
    names_may_come = names_may_come && arg != "--";
  }
  BH_RETURN_IF_ERROR(CheckNames(normalized));
  SplitLists(normalized);

  CLI::App app;
  app.set_help_flag("");
  app.allow_extras();
  const CLI::Option* help = app.add_flag("-h,--help");
  const CLI::Option* print_config = app.add_flag("--print-config");
  std::string config_path;
  app.add_option("--config", config_path);
  std::vector<CLI::Option*> options;
  std::vector<std::string> rest;
  try {
    for (const Flag& flag : flags_) {
      const auto keep = [](const CLI::results_t&) { return true; };
      options.push_back(flag.value_name.empty() ? app.add_flag(flag.names)
                                                : app.add_option(flag.names, keep));
      options.back()->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
    std::reverse(normalized.begin(), normalized.end());  // CLI11 takes them from the back
    app.parse(std::move(normalized));
    rest = app.remaining();
  } catch (const CLI::ArgumentMismatch& error) {
    return absl::InvalidArgumentError(absl::StrCat("a flag lacks its value (", error.what(), ")"));
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (help->count() > 0) return true;
  given_.clear();
  for (const CLI::Option* option : options) given_.push_back({option->results(), "flag"});
  BH_RETURN_IF_ERROR(AddPositionals(rest));
  if (!resolved) {
    AddEnvironment();
    const char* path = std::getenv("BULKHEAD_CONFIG");
    const bool of_environment = config_path.empty() && path != nullptr;
    if (of_environment) config_path = path;
    if (!config_path.empty()) {
      BH_RETURN_IF_ERROR(AddFile(config_path, of_environment, app, options));
    }
  }
  BH_RETURN_IF_ERROR(ApplyAll());
  if (print_config->count() > 0) {
    BH_ASSIGN_OR_RETURN(config_text_, ConfigText());
  }
  return print_config->count() > 0;
}

absl::Status Flags::ApplyAll() const {
  for (size_t i = 0; i < flags_.size(); ++i) {
    for (const std::string& value : given_[i].values) {
      const absl::Status status = flags_[i].apply(value);
      if (status.ok()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(given_[i].origin == "flag" ? "" : absl::StrCat(given_[i].origin, ": "),
                       flags_[i].Name(), ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status Flags::AddPositionals(const std::vector<std::string>& rest) {
  int taken = 0;
  bool after_mark = false;
  for (const std::string& word : rest) {
    if (!after_mark && word == "--") {
      after_mark = true;
      continue;
    }
    if (taken++ == max_positionals_) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument '", word, "' of 'bulkhead ", command_, "'"));
    }
    const auto flag = std::find_if(flags_.begin(), flags_.end(),
                                   [&](const Flag& one) { return one.names == positional_; });
    given_[flag - flags_.begin()].values.push_back(word);
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
