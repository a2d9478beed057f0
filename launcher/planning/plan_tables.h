// Tables of `plan` besides the report: the effect of more ranks, length against number of
// sequences, and configurations side by side.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/planning/host_fit.h"
#include "launcher/planning/model_capacity.h"

namespace bulkhead {

// The plan of a group of `size` ranks, including its host budget.
using GroupOfSize = std::function<absl::StatusOr<GroupPlan>(int size)>;

// One line per group size from 1 to 64 that the model can be split over.
std::string ScalingTable(const ModelCapacity& model, const GroupOfSize& group_of_size);

// The largest max_model_len with which 1, 2, 4 ... sequences fit at once, no other limit set; for
// equal lengths (the model's own) only the last row is kept.
std::vector<Limits> LengthCurve(const ModelCapacity& model,
                                const std::vector<DeviceBudget>& budgets);
// The inverse: the maximum number of sequences of 128, 256 ... tokens, up to the model's length.
std::vector<Limits> SequencesCurve(const ModelCapacity& model,
                                   const std::vector<DeviceBudget>& budgets);
std::string CurveText(const std::vector<Limits>& lengths, const std::vector<Limits>& sequences);

// Columns of `names`, one per plan.
std::string CompareTable(const std::vector<std::string>& names, const std::vector<Capacity>& plans);

}  // namespace bulkhead
