// `plan`: what `serve` would do with the same flags, without a device or weights.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/flags/options.h"
#include "launcher/planning/host_budget.h"
#include "launcher/planning/model_capacity.h"
#include "launcher/planning/model_source.h"
#include "launcher/planning/remedies.h"
#include "memory/device.h"
#include "memory/host_memory.h"

namespace bulkhead {

// One planned configuration. Its parts refer to each other: not movable.
struct Planned {
  EngineOptions engine;
  PlanOptions options;
  ModelSource source;
  std::unique_ptr<Device> device;  // the CPU
  std::unique_ptr<BackendSizes> sizes;
  DeviceKind kind = DeviceKind::kCpu;
  std::unique_ptr<ModelCapacity> model;
  std::optional<HostMemory> measured;      // this machine's, if planned with
  std::vector<DeviceBudget> free_budgets;  // before the clients' part
  std::vector<DeviceBudget> budgets;
  Capacity capacity;
  HostBudget host;

  bool fits() const { return capacity.fits && host.fits(); }
};

// `options` only for the GPU and the nodes. Errors carry an exit code.
absl::StatusOr<std::unique_ptr<Planned>> MakePlan(const EngineOptions& engine,
                                                  const PlanOptions& options);

// One line per group size, as `serve` would start it with the same flags.
std::string ScalingTableOf(const Planned& plan);

// Remedies for a plan that does not fit.
Remedies RemediesOf(const Planned& plan);

// Prints the plan; RESOURCE_EXHAUSTED with exit code 4 if it does not fit.
absl::Status RunPlan(const PlanOptions& options);

}  // namespace bulkhead
