// Plans a changed command line on ranks that were already measured.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/planning/host_fit.h"
#include "launcher/planning/model_capacity.h"
#include "launcher/planning/model_source.h"
#include "launcher/planning/remedies.h"

namespace bulkhead {

// The budgets of the group for other flags.
using BudgetsUnder =
    std::function<absl::StatusOr<std::vector<DeviceBudget>>(const EngineOptions& changed)>;

// `budgets` as BudgetsUnder: with --reserve and --device-memory changed; additional ranks of a
// larger group are like the smallest one.
absl::StatusOr<std::vector<DeviceBudget>> ChangedBudgets(const EngineOptions& changed,
                                                         std::vector<DeviceBudget> budgets);

// The part of a server's plan for its clients on rank 0's host; no request: nothing is served.
struct Clients {
  std::optional<HostRequest> request;
  HostAvailability available;
};
// The clients of a changed command line, for a group of `size`.
using ClientsUnder = std::function<Clients(const Command& changed, int size)>;

// `request` with the current server flags.
std::optional<HostRequest> ChangedRequest(std::optional<HostRequest> request,
                                          const Command& changed);

// Plans like a start, with the formats that the changed flags select for this model; the host
// budget must also fit. `source` and `sizes` outlive the function. Given `measured`, the limits are
// those of a first plan with `budgets`, and the result is a second one with `measured`.
PlanAgain PlanAgainOn(const ModelSource& source, const BackendSizes& sizes, DeviceKind kind,
                      ClientsUnder clients, BudgetsUnder budgets, BudgetsUnder measured = nullptr);

}  // namespace bulkhead
