// The least memory that a group starts with where the split follows the memory (--tp-shares auto):
// for all ranks together, since a rank's needs change with every other's total. Pure.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/capacity.h"

namespace bulkhead {

// What a group of these budgets comes to under limits that are given.
using PlanTotals = std::function<absl::StatusOr<Capacity>(absl::Span<const DeviceBudget> budgets)>;

// Sets every rank's required_bytes in `plan`: totals with which the group starts, and of which no
// rank can do with a byte less; 0 where no memory is enough. `replan` plans with plan.limits.
void SetLeastTotals(Capacity& plan, const PlanTotals& replan);

}  // namespace bulkhead
