// Remedies for a plan that does not fit: changes of the command line, each parsed and planned
// exactly as printed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/flags/options.h"
#include "launcher/planning/host_fit.h"
#include "runtime/model/footprint.h"

namespace bulkhead {

struct Remedy {
  std::vector<std::string> flags;  // name, value, name, value ...
  std::string text;
};

struct Remedies {
  std::vector<Remedy> list;  // in the order in which an operator would try them
  std::string none_because;  // if the list is empty
};

// Why nothing helps if a machine is too small for clients besides the arenas.
inline constexpr char kHostHasNoMore[] =
    "rank 0's host has no memory left after the arenas; use a smaller --device-memory, "
    "--max-model-len, --max-num-seqs or --max-num-queued-reqs, or a host with more memory";

// Plans a changed command line for the machine, or the ranks, of the refused plan.
using PlanAgain = std::function<absl::StatusOr<GroupPlan>(const Command& changed)>;

// `options`: the refused plan's, with the command line that they were parsed from; without it
// nothing can be tried. `formats`: resulting from them. Single changes; if none helps, the first
// few pairs that do; if there are none, and --host-memory is too small, pairs with a larger one.
Remedies FindRemedies(const EngineOptions& options, const ModelLimits& formats,
                      const GroupPlan& refused, const PlanAgain& plan_again);

}  // namespace bulkhead
