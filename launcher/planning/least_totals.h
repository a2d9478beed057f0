// The minimum memory with which a group starts if the split follows the memory (--tp-shares auto):
// for all ranks together, since a rank's needs depend on all totals. Pure.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/capacity.h"

namespace bulkhead {

// Plans a group with these budgets under given limits.
using PlanTotals = std::function<absl::StatusOr<Capacity>(absl::Span<const DeviceBudget> budgets)>;

// Sets every rank's required_bytes in `plan`: totals with which the group starts, and none of which
// can be reduced by a byte; 0 if no memory is enough. `replan` plans with plan.limits.
void SetLeastTotals(Capacity& plan, const PlanTotals& replan);

}  // namespace bulkhead
