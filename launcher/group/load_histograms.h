// The engine's histograms for the answer of GetLoad.
#pragma once

#include "bulkhead/v1/histogram.pb.h"
#include "runtime/engine/engine_metrics.h"

namespace bulkhead {

v1::RequestHistograms HistogramsOf(const EngineMetrics& metrics);

}  // namespace bulkhead
