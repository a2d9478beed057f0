// MetricsReading: everything a scrape reports, read at one time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/engine/engine_metrics.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

struct MetricsReading {
  std::shared_ptr<const ServingParts> parts;
  std::string model_name;  // at most kMaxModelNameLabel bytes
  v1::LoadInfo load;
  EngineMetrics engine;
  SchedulerLimits limits;  // now
  std::string epoch;
  std::string phase;  // "serving" ...
  int64_t open_http_connections = 0;
  int64_t open_metrics_connections = 0;
  int64_t started_unix_s = 0;
  int64_t now_unix_s = 0;
};

inline constexpr size_t kMaxModelNameLabel = 256;

// Waits for no step. UNAVAILABLE (STARTING, RANK_LOST): there is nothing to report.
absl::StatusOr<MetricsReading> ReadMetrics(ServiceCore& core, int64_t started_unix_s);

}  // namespace bulkhead
