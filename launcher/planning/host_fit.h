// The group's plan with its host budget: quotas for clients give way before limits do, and where
// the ranks' device is host memory that was measured, the reserve holds the budget.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "launcher/flags/options.h"
#include "launcher/planning/host_budget.h"
#include "launcher/planning/model_capacity.h"

namespace bulkhead {

// `dir` holds the model; `ranks_on_host` share rank 0's host.
HostRequest HostRequestOf(const ServeOptions& options, const std::string& dir, int ranks_on_host);

// Where the host budget comes from.
struct HostRoom {
  // Ranks whose measured memory holds it, each an equal part, so that no rank's KV is small for it
  // alone: those that what limits rank 0 most limits most, too. None under --device-memory and on
  // GPUs.
  std::vector<int> sharers = {};
  // Where there are no sharers; absent: not known.
  std::optional<int64_t> available_bytes = std::nullopt;
};

struct GroupPlan {
  Capacity capacity;
  std::optional<HostBudget> host;  // of a server

  bool fits() const { return capacity.fits && (!host.has_value() || host->fits()); }
  std::vector<DeviceBudget> budgets() const;  // with the reserve that holds the host budget
};

// `request` is absent where nothing is served. INVALID_ARGUMENT as ModelCapacity::Plan.
// In less time, as ModelCapacity::Fit.
absl::StatusOr<GroupPlan> FitGroup(const ModelCapacity& model,
                                   absl::Span<const DeviceBudget> budgets,
                                   const std::optional<HostRequest>& request, const HostRoom& room);
absl::StatusOr<GroupPlan> PlanGroup(const ModelCapacity& model,
                                    absl::Span<const DeviceBudget> budgets,
                                    const std::optional<HostRequest>& request,
                                    const HostRoom& room);

// The least --host-memory with which a plan fits that came to `host` with the least quotas, and
// whose arenas fit. Where memory is measured the pool is a little different each time, and so is
// the index of the prefix cache: an eighth of leeway for it.
int64_t EnoughHostMemory(const Capacity& capacity, const HostBudget& host);

}  // namespace bulkhead
