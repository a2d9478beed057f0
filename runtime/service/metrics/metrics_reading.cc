#include "runtime/service/metrics/metrics_reading.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "runtime/service/control_answers.h"

namespace bulkhead {
namespace {

const char* PhaseName(ServingPhase phase) {
  switch (phase) {
    case ServingPhase::kStarting:
      return "starting";
    case ServingPhase::kServing:
      return "serving";
    case ServingPhase::kDraining:
      return "draining";
    case ServingPhase::kLost:
      return "lost";
    case ServingPhase::kStopping:
      break;
  }
  return "stopping";
}

}  // namespace

absl::StatusOr<MetricsReading> ReadMetrics(ServiceCore& core, int64_t started_unix_s) {
  BH_ASSIGN_OR_RETURN(std::shared_ptr<const ServingParts> parts,
                      core.state.ForControl(v1::GetLoadRequest()));
  EngineControl& control = *parts->control;
  MetricsReading reading{.parts = parts,
                         .model_name = parts->model_info.served_model_name(),
                         .load = {},
                         .engine = control.Metrics(),
                         .limits = control.Limits(),
                         .epoch = core.state.epoch(),
                         .phase = PhaseName(core.state.phase())};
  reading.model_name.resize(std::min(reading.model_name.size(), kMaxModelNameLabel));
  BH_RETURN_IF_ERROR(ControlAnswers(&core).GetLoad({}, "", &reading.load));
  reading.open_http_connections = core.host.http_connections.now();
  reading.open_metrics_connections = core.host.metrics_connections.now();
  reading.started_unix_s = started_unix_s;
  reading.now_unix_s = absl::ToUnixSeconds(absl::Now());
  return reading;
}

}  // namespace bulkhead
