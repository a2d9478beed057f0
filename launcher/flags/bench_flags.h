// The parsers of the individual bench commands; ParseBench selects one by name.
#pragma once

#include "launcher/flags/command_flags.h"

namespace bulkhead {

absl::StatusOr<Command> ParseServeBench(CommandArgs args);
absl::StatusOr<Command> ParseSweepBench(CommandArgs args);
absl::StatusOr<Command> ParseCompareBench(CommandArgs args);

}  // namespace bulkhead
