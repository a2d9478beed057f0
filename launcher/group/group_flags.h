// One set of flags for a group: rank 0's; no other rank may contradict them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/exchange.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Collective, before anything else that depends on flags. Rank 0's flags, from command line,
// environment or file, apply on every rank, except host-specific ones: cores, memory, log. The
// model's folder is rank 0's if a rank is given none. Errors, agreed: exit code 5, naming rank,
// flag and both values, for a rank whose value differs from rank 0's.
absl::StatusOr<EngineOptions> FlagsOfGroup(const EngineOptions& options, GroupExchange& exchange);

// The command line of a rank from its own (Flags::Resolved) and rank 0's, and its options.
// INVALID_ARGUMENT as above, without the rank. Pure.
absl::StatusOr<EngineOptions> WithFlagsOfRank0(const std::vector<std::string>& own,
                                               const std::vector<std::string>& rank0);

}  // namespace bulkhead
