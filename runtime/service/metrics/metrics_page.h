// MetricsPage: the text of /metrics, version 0.0.4 of Prometheus' format, by prometheus-cpp.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// The longest page of a group of N ranks. Making it takes kHeldPerMetricsByte
// (runtime/service/host_quotas.h) times that.
int64_t MaxMetricsBytes(int64_t ranks);

class MetricsPage {
 public:
  // `core` outlives it.
  explicit MetricsPage(ServiceCore* core);

  // Any thread; waits for no step, so that a hanging engine is reported. UNAVAILABLE (STARTING,
  // RANK_LOST); RESOURCE_EXHAUSTED (HOST_MEMORY) above quotas.metrics_bytes.
  absl::StatusOr<std::string> Text() const;

 private:
  ServiceCore* const core_;
  const int64_t started_unix_s_;
};

}  // namespace bulkhead
