#include "launcher/group/group_flags.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "bulkhead/internal/startup.pb.h"
#include "launcher/flags/changed_args.h"
#include "launcher/flags/flags.h"
#include "launcher/gather_messages.h"
#include "launcher/version.h"

namespace bulkhead {
namespace {

using Args = std::vector<std::string>;

// Flags that may differ between hosts: a rank without them uses defaults, not rank 0's.
constexpr absl::string_view kOfAHost[] = {"--threads", "--device-memory", "--reserve",   "--numa",
                                          "--cpu-isa", "--verbose",       "--log-format"};

std::string NameOf(const std::string& arg) { return arg.substr(0, arg.find('=')); }

// The flags of `args` with these names.
Args FlagsNamed(const Args& args, const std::string& name) {
  Args named;
  for (const std::string& arg : args) {
    if (NameOf(arg) == name) named.push_back(arg);
  }
  return named;
}

// `args` with its flags replaced by those of the same names in `more`.
Args Overlaid(const Args& args, const Args& more) {
  Args all;
  for (const std::string& arg : args) {
    if (FlagsNamed(more, NameOf(arg)).empty()) all.push_back(arg);
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Without the command line.
absl::StatusOr<EngineOptions> EngineOptionsOf(const Args& args) {
  BH_ASSIGN_OR_RETURN(const Command command, ParseCommandLine(args));
  const EngineOptions* const engine = EngineOf(command);
  if (engine == nullptr) return absl::InternalError("not a rank's command line");
  EngineOptions options = *engine;
  options.command_line.clear();
  return options;
}

std::string ValueText(const Args& flags) {
  if (flags.empty()) return "its default";
  std::vector<absl::string_view> values;
  for (const std::string& flag : flags) {
    values.push_back(absl::string_view(flag).substr(std::min(flag.size(), flag.find('=') + 1)));
  }
  return absl::StrJoin(values, ", ");
}

}  // namespace

absl::StatusOr<EngineOptions> WithFlagsOfRank0(const Args& own, const Args& rank0) {
  const auto is_flag = [](const std::string& arg) { return absl::StrContains(arg, '='); };
  const auto command_of = [&](const Args& args) {
    Args words(args.begin(), std::find_if(args.begin(), args.end(), is_flag));
    words.erase(std::remove(words.begin(), words.end(), kResolved), words.end());
    return absl::StrJoin(words, " ");
  };
  if (command_of(own) != command_of(rank0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the command is ", command_of(own), " where rank 0 has ", command_of(rank0)));
  }
  const auto is_own = [](const std::string& name) {
    return name == "--model" || std::count(std::begin(kOfAHost), std::end(kOfAHost), name) > 0;
  };
  Args of_host;
  std::set<std::string> of_group;
  for (const std::string& arg : own) {
    if (!is_flag(arg)) continue;
    if (is_own(NameOf(arg))) {
      of_host.push_back(arg);
    } else {
      of_group.insert(NameOf(arg));
    }
  }
  const Args agreed = Overlaid(rank0, of_host);
  BH_ASSIGN_OR_RETURN(EngineOptions options, EngineOptionsOf(agreed));
  // Compares what flags mean, not how they are written: 32K is 32768.
  for (const std::string& flag : of_group) {
    const Args mine = FlagsNamed(own, flag);
    const Args theirs = FlagsNamed(rank0, flag);
    if (mine == theirs) continue;
    const absl::StatusOr<EngineOptions> with_mine = EngineOptionsOf(Overlaid(agreed, mine));
    if (with_mine.ok() && *with_mine == options) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is ", ValueText(mine), " where rank 0 has ", ValueText(theirs),
                     "; start every rank with the same flags, or give them to rank 0 alone"));
  }
  options.command_line = agreed;
  return options;
}

absl::StatusOr<EngineOptions> FlagsOfGroup(const EngineOptions& options, GroupExchange& exchange) {
  const bool first = exchange.topology().coordinator();
  internal::RankFlags mine;
  mine.set_build(std::string(Version()));
  if (first) {
    for (std::string& arg : WithoutFlags(options.command_line, kOfAHost)) {
      mine.add_args(std::move(arg));
    }
  }
  BH_ASSIGN_OR_RETURN(const std::vector<internal::RankFlags> ranks,
                      GatherMessages(exchange, mine, options.startup_timeout));
  const internal::RankFlags& rank0 = ranks[0];
  absl::StatusOr<EngineOptions> agreed = options;
  // Another build may have other flags, and is refused with its name later (rank_inputs.h).
  if (!first && rank0.build() == mine.build()) {
    agreed = WithFlagsOfRank0(options.command_line, {rank0.args().begin(), rank0.args().end()});
  }
  BH_RETURN_IF_ERROR(Agree(exchange, "flags", WithExitCode(agreed.status(), ExitCode::kGroupNotUp),
                           options.startup_timeout));
  return agreed;
}

}  // namespace bulkhead
