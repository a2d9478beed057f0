// The parsers of the individual commands; ParseCommandLine selects one by name.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "launcher/flags/options.h"

namespace bulkhead {

using CommandArgs = absl::Span<const std::string>;  // the arguments after the command's name

absl::StatusOr<Command> ParseServe(CommandArgs args);
absl::StatusOr<Command> ParseRun(CommandArgs args);
absl::StatusOr<Command> ParseScore(CommandArgs args);
absl::StatusOr<Command> ParsePlan(CommandArgs args);
absl::StatusOr<Command> ParseGenerate(CommandArgs args);
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
