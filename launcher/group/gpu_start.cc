#include "launcher/group/gpu_start.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/host_cores.h"
#include "base/log.h"
#include "base/status.h"
#include "bulkhead/internal/startup.pb.h"
#include "launcher/gather_messages.h"
#include "launcher/group/startup.h"
#include "launcher/planning/changed_plan.h"
#include "launcher/planning/device_budget.h"
#include "launcher/wire.h"
#include "memory/gpu_processes.h"

namespace bulkhead {
namespace {

// Failing to create the lock does not prevent the start; a held lock does.
absl::Status LockGpu(Group& group, absl::Duration timeout, RankEngine& engine) {
  if (!engine.choice.first_sharer) return absl::OkStatus();
  auto lock = DeviceLock::OpenGpu(engine.choice.identity.uuid);
  if (!lock.ok()) {
    BH_LOG(kWarning) << lock.status().message();
    return absl::OkStatus();
  }
  engine.lock = *std::move(lock);
  return engine.lock->Take(kLockShare * timeout, IsLost(group));
}

std::string OthersOn(const std::string& uuid) {
  const auto others = OtherGpuProcesses(uuid, {getpid()});
  return others.ok() ? GpuProcessesText(*others) : std::string(others.status().message());
}

// Total allocations of all ranks on this rank's GPU. Collective.
absl::StatusOr<int64_t> SharersBytes(GroupExchange& exchange, absl::Duration timeout,
                                     const RankEngine& engine) {
  internal::GpuBytes mine;
  mine.set_uuid(engine.choice.identity.uuid);
  mine.set_bytes(engine.device->allocated_bytes());
  BH_ASSIGN_OR_RETURN(const std::vector<internal::GpuBytes> ranks,
                      GatherMessages(exchange, mine, timeout));
  int64_t sum = 0;
  for (const internal::GpuBytes& rank : ranks) {
    if (rank.uuid() == mine.uuid()) sum += rank.bytes();
  }
  return sum;
}

// The budget of the second plan: measured library memory instead of an estimate. Collective: no
// rank allocates while another one measures.
absl::StatusOr<DeviceBudget> MeasureDriver(GroupExchange& exchange, absl::Duration timeout,
                                           const RankEngine& engine) {
  int64_t free_bytes = 0;
  BH_RETURN_IF_ERROR(RunPhase(exchange, "memory probe", timeout, [&]() -> absl::Status {
    BH_RETURN_IF_ERROR(engine.device->Synchronize());
    BH_ASSIGN_OR_RETURN(const CudaMemory memory, engine.driver->Memory());
    free_bytes = memory.free_bytes;
    return absl::OkStatus();
  }));
  BH_ASSIGN_OR_RETURN(const int64_t ours, SharersBytes(exchange, timeout, engine));
  DeviceBudget budget = engine.capacity.ranks[engine.topology.rank].budget;
  // The pool may end within a granule.
  budget.driver_bytes =
      std::max<int64_t>(0, engine.probed_free_bytes - free_bytes - ours) / engine.choice.sharers +
      engine.driver->properties().map_granule_bytes;
  return budget;
}

}  // namespace

absl::Status OpenRankDevice(const EngineOptions& options, Group& group, RankEngine& engine) {
  GroupExchange& exchange = group.exchange();
  const absl::Duration timeout = options.startup_timeout;
  BH_ASSIGN_OR_RETURN(engine.choice, ChooseDevice(options, exchange, &FindDevices, timeout));
  LogLine(engine.choice.level) << "device: " << engine.choice.text;
  if (!engine.choice.rounded_sums.empty()) {
    BH_LOG(kInfo) << "sums rounded to " << DTypeName(options.all_reduce_dtype) << ": "
                  << engine.choice.rounded_sums;
  }
  if (!engine.choice.cuda) return absl::OkStatus();
  BH_LOG(kVerbose) << "products of many tokens: " << engine.choice.products;
  UseCores(AllowedCoresNear(engine.choice.identity.pci_bus_id));
  return RunPhase(exchange, "device", timeout, [&]() -> absl::Status {
    BH_RETURN_IF_ERROR(LockGpu(group, timeout, engine));
    absl::StatusOr<std::unique_ptr<CudaDriver>> driver =
        NewCudaRuntimeDriver(engine.choice.ordinal);
    if (!driver.ok()) return WithExitCode(driver.status(), ExitCode::kGroupNotUp);
    engine.driver = *std::move(driver);
    return absl::OkStatus();
  });
}

absl::StatusOr<DeviceBudget> MeasureGpu(const EngineOptions& options, RankEngine& engine) {
  BH_ASSIGN_OR_RETURN(const CudaMemory memory, engine.driver->Memory());
  engine.probed_free_bytes = memory.free_bytes;
  return GpuBudgetOf(options, engine.topology.rank, engine.topology.size,
                     {.name = engine.choice.identity.name,
                      .total_bytes = memory.total_bytes,
                      .free_bytes = memory.free_bytes,
                      .sharers = engine.choice.sharers},
                     engine.choice.transport, engine.threads.num_threads);
}

bool DefersKvAllocation(const RankEngine& engine) {
  return engine.driver != nullptr && engine.capacity.ranks[engine.topology.rank].budget.probed;
}

absl::Status TakeKvLast(const EngineOptions& options, Group& group,
                        const std::optional<std::string>& report, RankEngine& engine) {
  GroupExchange& exchange = group.exchange();
  const absl::Duration timeout = options.startup_timeout;
  BH_ASSIGN_OR_RETURN(const DeviceBudget mine, MeasureDriver(exchange, timeout, engine));
  BH_ASSIGN_OR_RETURN(const std::vector<DeviceBudget> budgets,
                      GatherBudgets(exchange, timeout, mine));
  EngineOptions fixed = options;  // arenas of these limits already exist
  fixed.limits = GivenLimits(engine.limits);
  const ModelCapacity model(engine.source.config.model, engine.source.formats, fixed,
                            *engine.backend, DeviceKind::kGpu, engine.source.draft_shape());
  std::vector<DeviceBudget> guessed;
  for (const RankCapacity& rank : engine.capacity.ranks) guessed.push_back(rank.budget);
  absl::StatusOr<Capacity> capacity = model.Plan(budgets);
  if (!capacity.ok()) return MarkAgreed(capacity.status());
  engine.capacity = *std::move(capacity);
  if (engine.host.has_value()) {  // the prefix cache's index depends on the pool's size
    const HostBudget before = *engine.host;
    engine.host = HostBudgetAt(before.step, *engine.host_request, engine.capacity);
    if (before.available_bytes.has_value()) {
      engine.host->available_bytes = std::max(*before.available_bytes, engine.host->total_bytes());
    }
  }
  if (!engine.capacity.fits) {
    const auto first = [&](const EngineOptions& other) { return ChangedBudgets(other, guessed); };
    const auto second = [&](const EngineOptions& other) { return ChangedBudgets(other, budgets); };
    const auto clients = [&](const Command& other, int) {
      return Clients{ChangedRequest(engine.host_request, other), {}};
    };
    return RefuseCapacity(
        options,
        PlanAgainOn(engine.source, *engine.backend, DeviceKind::kGpu, clients, first, second),
        engine, report);
  }
  const int64_t blocks = engine.capacity.limits.num_kv_blocks;
  BH_RETURN_IF_ERROR(RunPhase(exchange, "KV pool", timeout, [&]() -> absl::Status {
    ModelRunner* const draft = engine.draft != nullptr ? engine.draft->runner.get() : nullptr;
    absl::Status grown = engine.runner->GrowKv(blocks, *engine.ledger, draft);
    if (grown.ok()) grown = engine.device->Synchronize();
    return WithExitCode(std::move(grown), ExitCode::kDoesNotFit);
  }));
  engine.limits.num_kv_blocks = blocks;
  return absl::OkStatus();
}

absl::Status WatchGpu(RankEngine& engine) {
  CudaDriver* const driver = engine.driver.get();
  BH_ASSIGN_OR_RETURN(const CudaMemory memory, driver->Memory());
  const std::string uuid = engine.choice.identity.uuid;
  engine.watch = std::make_unique<DeviceWatch>(
      DeviceWatch::Options{.device = absl::StrCat(engine.choice.identity.name, " (", uuid, ")"),
                           .free_bytes = [driver]() -> absl::StatusOr<int64_t> {
                             BH_ASSIGN_OR_RETURN(const CudaMemory now, driver->Memory());
                             return now.free_bytes;
                           },
                           .others = [uuid] { return OthersOn(uuid); }},
      memory.free_bytes);
  engine.lock.reset();
  return absl::OkStatus();
}

}  // namespace bulkhead
