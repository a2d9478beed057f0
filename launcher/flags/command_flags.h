// The parsers of the individual commands; ParseCommandLine selects one by name.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "launcher/flags/options.h"
#include "nlohmann/json_fwd.hpp"

namespace bulkhead {

using CommandArgs = absl::Span<const std::string>;  // the arguments after the command's name

using CommandParser = absl::StatusOr<Command> (*)(CommandArgs);

// A command's help as JSON: an object, or a list if it has subcommands. Only name and summary if
// `parse` is null or does not report its flags.
nlohmann::ordered_json HelpPage(const std::string& command, const char* summary,
                                CommandParser parse);

// Whether the help of any command has `name` ("--max-num-seqs").
bool IsFlagOfAnyCommand(const std::string& name);

absl::StatusOr<Command> ParseServe(CommandArgs args);
absl::StatusOr<Command> ParseRun(CommandArgs args);
absl::StatusOr<Command> ParseScore(CommandArgs args);
absl::StatusOr<Command> ParsePlan(CommandArgs args);
absl::StatusOr<Command> ParseGenerate(CommandArgs args);
absl::StatusOr<Command> ParseChat(CommandArgs args);
absl::StatusOr<Command> ParseTokenize(CommandArgs args);
absl::StatusOr<Command> ParseDrain(CommandArgs args);
absl::StatusOr<Command> ParseBench(CommandArgs args);
absl::StatusOr<Command> ParseComm(CommandArgs args);
absl::StatusOr<Command> ParseServeBench(CommandArgs args);
absl::StatusOr<Command> ParseSimulate(CommandArgs args);
absl::StatusOr<Command> ParseVerify(CommandArgs args);
absl::StatusOr<Command> ParseThroughput(CommandArgs args);
absl::StatusOr<Command> ParseLimits(CommandArgs args);
absl::StatusOr<Command> ParseDoctor(CommandArgs args);

}  // namespace bulkhead
