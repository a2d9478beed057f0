// What a rank's start has beside a CPU's when it computes on a GPU: the choice of it, its context
// and lock, and a KV pool that is sized once everything else has taken what it takes.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "comm/group.h"
#include "launcher/group/startup.h"

namespace bulkhead {

// Collective. Chooses the device; on a GPU takes cores near it, waits for its lock, and opens it.
absl::Status OpenRankDevice(const EngineOptions& options, Group& group, RankEngine& engine);

// What this rank's GPU offers, once every rank has opened its own.
absl::StatusOr<DeviceBudget> MeasureGpu(const EngineOptions& options, RankEngine& engine);

// Whether the KV pool is small until the warm-up has shown what is left: on a GPU that is
// measured. Under --device-memory the plan is whole from the start.
bool DefersKvAllocation(const RankEngine& engine);

// Collective, after the warm-up, where DefersKvAllocation: measures what libraries have taken,
// plans the KV pool once more under the limits that stand, and takes it. Refuses as the first plan
// does.
absl::Status TakeKvLast(const EngineOptions& options, Group& group,
                        const std::optional<std::string>& report, RankEngine& engine);

// After the seal: lets others start on the GPU, and watches what it has free.
absl::Status WatchGpu(RankEngine& engine);

}  // namespace bulkhead
