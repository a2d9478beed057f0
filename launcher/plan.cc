#include "launcher/plan.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <vector>

#include "launcher/capacity_report.h"
#include "launcher/device_budget.h"
#include "launcher/exit_status.h"
#include "launcher/model_capacity.h"
#include "launcher/model_source.h"
#include "launcher/wire.h"
#include "memory/exit_code.h"
#include "memory/host_cores.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

absl::StatusOr<std::vector<DeviceBudget>> Budgets(const EngineOptions& options, int size) {
  const int num_threads = std::max(1, static_cast<int>(AllowedCores().size()) / size);
  std::vector<DeviceBudget> budgets;
  for (int rank = 0; rank < size; ++rank) {
    BH_ASSIGN_OR_RETURN(budgets.emplace_back(),
                        BudgetOf(options, rank, size, size, options.threads.value_or(num_threads)));
  }
  return budgets;
}

}  // namespace

absl::Status RunPlan(const PlanOptions& options) {
  const EngineOptions& engine = options.serve.engine;
  BH_ASSIGN_OR_RETURN(const ModelSource source, ReadModelSource(engine, Weights::kOptional));
  BH_ASSIGN_OR_RETURN(const std::vector<DeviceBudget> budgets,
                      Budgets(engine, engine.tensor_parallel_size.value_or(1)));
  const std::unique_ptr<Device> device = MakeDevice(budgets[0]);
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend(engine, {}, *device));
  const ModelCapacity model(source.config.model, source.formats, engine, *backend);
  BH_ASSIGN_OR_RETURN(const Capacity capacity, model.Plan(budgets));
  const Remedies remedies = capacity.fits ? Remedies() : model.FindRemedies(capacity);
  if (options.json) {
    std::cout << CapacityJson(capacity, remedies,
                              {.kv_cache_dtype = std::string(DTypeName(source.formats.kv_dtype))});
  } else {
    std::cout << CapacityTable(capacity);
    if (!capacity.fits) std::cout << RemediesText(remedies) << "\n";
  }
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  if (capacity.fits) return absl::OkStatus();
  return WithExitCode(absl::ResourceExhaustedError(ShortageText(capacity)), ExitCode::kDoesNotFit);
}

}  // namespace bulkhead
