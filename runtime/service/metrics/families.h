// The families of /metrics. Each function adds its own to the list.
#pragma once

#include "runtime/service/metrics/family_list.h"
#include "runtime/service/metrics/metrics_reading.h"

namespace bulkhead {

// vllm:*, with the labels model_name and engine; names of vLLM 0.33, and of older releases where
// boards still ask for them.
void AddVllmFamilies(const MetricsReading& reading, FamilyList& list);
// bulkhead_*: for the group as a whole.
void AddOwnFamilies(const MetricsReading& reading, FamilyList& list);
// bulkhead_*: by rank.
void AddRankFamilies(const MetricsReading& reading, FamilyList& list);

}  // namespace bulkhead
