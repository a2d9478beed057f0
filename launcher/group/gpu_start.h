// GPU-specific steps of a rank's start: device selection, context and lock, and a KV pool that is
// sized after all other allocations.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "comm/group.h"
#include "launcher/group/rank_engine.h"

namespace bulkhead {

// Collective. Chooses the device; on a GPU binds to cores near it, waits for its lock, and opens
// it.
absl::Status OpenRankDevice(const EngineOptions& options, Group& group, RankEngine& engine);

// This rank's GPU budget, after every rank has opened its own.
absl::StatusOr<DeviceBudget> MeasureGpu(const EngineOptions& options, RankEngine& engine);

// Whether the KV pool stays small until the warm-up shows how much memory is left: on a measured
// GPU. With --device-memory the first plan is final.
bool DefersKvAllocation(const RankEngine& engine);

// Collective, after the warm-up, if DefersKvAllocation: measures library memory, plans the KV pool
// again under the fixed limits, and takes it. Refuses like the first plan.
absl::Status TakeKvLast(const EngineOptions& options, Group& group,
                        const std::optional<std::string>& report, RankEngine& engine);

// After the seal: releases the GPU's lock, and watches its free memory.
absl::Status WatchGpu(RankEngine& engine);

}  // namespace bulkhead
