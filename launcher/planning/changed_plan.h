// What a changed command line would come to on ranks that were looked at already.
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

// The budgets of the group that other flags make.
using BudgetsUnder =
    std::function<absl::StatusOr<std::vector<DeviceBudget>>(const EngineOptions& changed)>;

// `budgets` as BudgetsUnder: under --reserve and --device-memory as they are changed; ranks that a
// larger group has more are like the smallest.
absl::StatusOr<std::vector<DeviceBudget>> ChangedBudgets(const EngineOptions& changed,
                                                         std::vector<DeviceBudget> budgets);

// What a server's plan keeps for its clients on rank 0's host, and where; no request: nothing is
// served.
struct Clients {
  std::optional<HostRequest> request;
  HostRoom room;
};
// Those of a changed command line, for a group of `size`.
using ClientsUnder = std::function<Clients(const Command& changed, int size)>;

// `request` with what the flags of a server say now.
std::optional<HostRequest> ChangedRequest(std::optional<HostRequest> request,
                                          const Command& changed);

// Plans as a start does, with the formats that the changed flags choose for this model; what
// clients may come to must fit, too. `source` and `sizes` outlive the function. Where `measured` is
// there, limits are those of a first plan with `budgets`, and what fits is a second one's with
// `measured`.
PlanAgain PlanAgainOn(const ModelSource& source, const BackendSizes& sizes, DeviceKind kind,
                      ClientsUnder clients, BudgetsUnder budgets, BudgetsUnder measured = nullptr);

}  // namespace bulkhead
