// The group's plan with its host budget: client quotas are reduced before limits, and on a measured
// host whose memory is the ranks' device, the reserve contains the budget.
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

// `dir` is the model's folder; `ranks_on_host` share rank 0's host.
HostRequest HostRequestOf(const ServeOptions& options, const std::string& dir, int ranks_on_host);

// The source of the host budget's memory.
struct HostAvailability {
  // Ranks whose measured memory contains it, in equal parts, so that it does not shrink one rank's
  // KV only: those with the same tightest limit as rank 0. Empty with --device-memory and on GPUs.
  std::vector<int> sharers = {};
  // If there are no sharers; absent: unknown.
  std::optional<int64_t> available_bytes = std::nullopt;
};

struct GroupPlan {
  Capacity capacity;
  std::optional<HostBudget> host;  // a server's

  bool fits() const { return capacity.fits && (!host.has_value() || host->fits()); }
  std::vector<DeviceBudget> budgets() const;  // with the reserve that contains the host budget
};

// `request` is absent if nothing is served. INVALID_ARGUMENT as ModelCapacity::Plan. Faster, like
// ModelCapacity::Fit.
absl::StatusOr<GroupPlan> FitGroup(const ModelCapacity& model,
                                   absl::Span<const DeviceBudget> budgets,
                                   const std::optional<HostRequest>& request,
                                   const HostAvailability& available);
absl::StatusOr<GroupPlan> PlanGroup(const ModelCapacity& model,
                                    absl::Span<const DeviceBudget> budgets,
                                    const std::optional<HostRequest>& request,
                                    const HostAvailability& available);

// The minimum --host-memory for a plan whose arenas fit, and that ended with `host` at the smallest
// quotas. On measured memory the pool, and so the prefix cache's index, varies slightly: adds an
// eighth of the index.
int64_t EnoughHostMemory(const Capacity& capacity, const HostBudget& host);

}  // namespace bulkhead
