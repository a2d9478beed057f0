#include "launcher/planning/changed_plan.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "launcher/planning/device_budget.h"
#include "launcher/wire.h"
#include "shard/weight_loader.h"

namespace bulkhead {
namespace {

absl::StatusOr<GroupPlan> FitOn(const EngineOptions& options, const ModelSource& source,
                                const BackendSizes& sizes, DeviceKind kind, const Clients& clients,
                                absl::Span<const DeviceBudget> budgets) {
  BH_ASSIGN_OR_RETURN(ModelLimits formats, FormatsOf(options, source));
  const ModelConfig& config = source.config.model;
  if (kind == DeviceKind::kGpu) {
    BH_RETURN_IF_ERROR(MakeGpuSizes(formats, config, false).status());
    const auto size = static_cast<int>(budgets.size());
    formats.transport = options.comm == CommOption::kStaged ? GpuTransport(options.comm, size)
                                                            : source.formats.transport;
  }
  std::optional<ModelShape> draft;
  if (source.draft != nullptr && options.speculative.by_model()) {
    BH_ASSIGN_OR_RETURN(ModelLimits own, DraftFormatsOf(options, *source.draft, formats));
    if (kind == DeviceKind::kGpu) {
      BH_RETURN_IF_ERROR(MakeGpuSizes(own, source.draft->config.model, false).status());
    }
    draft.emplace(source.draft->config.model, std::move(own));
  }
  const ModelCapacity model(config, formats, options, sizes, kind, std::move(draft));
  return FitGroup(model, budgets, clients.request, clients.available);
}

}  // namespace

absl::StatusOr<std::vector<DeviceBudget>> ChangedBudgets(const EngineOptions& changed,
                                                         std::vector<DeviceBudget> budgets) {
  const auto now = static_cast<int>(budgets.size());
  const int size = changed.tensor_parallel_size.value_or(now);
  const DeviceBudget least = *std::min_element(
      budgets.begin(), budgets.end(),
      [](const DeviceBudget& a, const DeviceBudget& b) { return a.total_bytes < b.total_bytes; });
  budgets.resize(size, least);
  for (int rank = 0; rank < size; ++rank) {
    budgets[rank].rank = rank;
    if (size > now) {  // ranks share the cores
      budgets[rank].transient_bytes =
          std::max(budgets[rank].transient_bytes * now / size, Checkpoint::kStagingBytes);
    }
    if (now == 1 && size > 1) budgets[rank].driver_bytes += NcclGuessBytes(changed, budgets[rank]);
    BH_RETURN_IF_ERROR(ApplyMemoryFlags(changed, size, budgets[rank]));
  }
  return budgets;
}

std::optional<HostRequest> ChangedRequest(std::optional<HostRequest> request,
                                          const Command& changed) {
  if (!request.has_value()) return request;
  const ServeOptions* const server = ServerOf(changed);
  if (server == nullptr) return request;
  request->max_num_queued_reqs = server->max_num_queued_reqs;
  request->host_memory = server->host_memory;
  request->prefix_caching = server->engine.enable_prefix_caching;
  request->http = server->http_port.has_value();
  request->metrics_port = server->metrics_port.has_value();
  request->tls = server->security.ssl_certfile.has_value();
  request->access_control = server->security.HasAccessControl();
  request->kv_events = server->enable_kv_cache_events;
  return request;
}

PlanAgain PlanAgainOn(const ModelSource& source, const BackendSizes& sizes, DeviceKind kind,
                      ClientsUnder clients, BudgetsUnder budgets, BudgetsUnder measured) {
  return [&source, &sizes, kind, clients = std::move(clients), budgets = std::move(budgets),
          measured = std::move(measured)](const Command& command) -> absl::StatusOr<GroupPlan> {
    const EngineOptions& changed = *EngineOf(command);
    BH_ASSIGN_OR_RETURN(const std::vector<DeviceBudget> first, budgets(changed));
    const Clients served = clients(command, static_cast<int>(first.size()));
    BH_ASSIGN_OR_RETURN(GroupPlan plan, FitOn(changed, source, sizes, kind, served, first));
    if (measured == nullptr || !plan.fits()) return plan;
    EngineOptions fixed = changed;
    fixed.limits = GivenLimits(plan.capacity.limits);
    BH_ASSIGN_OR_RETURN(const std::vector<DeviceBudget> second, measured(changed));
    return FitOn(fixed, source, sizes, kind, served, second);
  };
}

}  // namespace bulkhead
