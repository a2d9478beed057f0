#include "launcher/group/startup.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"
#include "launcher/gather_messages.h"
#include "launcher/group/draft_model.h"
#include "launcher/group/gpu_start.h"
#include "launcher/group/host_start.h"
#include "launcher/group/load_weights.h"
#include "launcher/group/rank_inputs.h"
#include "launcher/planning/capacity_report.h"
#include "launcher/planning/changed_plan.h"
#include "launcher/planning/startup_messages.h"
#include "launcher/report.h"
#include "launcher/version.h"
#include "runtime/engine/logits_check.h"
#include "runtime/engine/warm_up.h"
#include "shard/model_folder.h"

namespace bulkhead {
namespace {

// A full chunk that takes longer is extrapolated, not run. A GPU's libraries may take memory at
// the first one; a CPU's arenas are backed before.
constexpr absl::Duration kCpuWarmUpTime = absl::Milliseconds(300);
constexpr absl::Duration kGpuWarmUpTime = absl::Seconds(10);

void LogLines(LogLevel level, const std::string& text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    LogLine(level) << line;
  }
}

// What is starting, in one line.
std::string HeadLine(const RankEngine& engine) {
  return absl::StrCat("bulkhead ", Version(), " | ", engine.source.config.model.architecture, " ",
                      WeightFormatsText(engine.limits.weights), " | ",
                      RanksText(engine.topology.size), " x ", engine.threads.num_threads,
                      " threads | ", engine.choice.cuda ? engine.choice.identity.name : "cpu");
}

absl::Status ReadModel(const EngineOptions& options, RankEngine& engine) {
  BH_ASSIGN_OR_RETURN(engine.source, ReadModelSource(options, Weights::kRequired));
  if (!engine.topology.coordinator()) return absl::OkStatus();
  for (const std::string& warning : engine.source.config.warnings) BH_LOG(kWarning) << warning;
  if (engine.source.draft != nullptr) {
    for (const std::string& warning : engine.source.draft->config.warnings)
      BH_LOG(kWarning) << "draft model: " << warning;
  }
  const std::string defaults = DefaultsText(engine.source.config.generation);
  if (!defaults.empty()) {
    BH_LOG(kInfo) << "generation_config.json: requests that say nothing else have " << defaults;
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(engine.source.dir);
  if (tokenizer.ok()) {
    engine.tokenizer = *std::move(tokenizer);
    if (engine.source.draft == nullptr || options.speculative.drafts.mtp) return absl::OkStatus();
    return CompareTokenizers(*engine.tokenizer, engine.source);
  }
  if (!absl::IsNotFound(tokenizer.status())) return tokenizer.status();
  BH_LOG(kWarning) << "no tokenizer.json in " << engine.source.dir << ": token ids alone are served"
                   << HintForMissingTokenizer(engine.source.dir);
  return absl::OkStatus();
}

// The device and its kernels.
absl::Status CreateDeviceAndBackend(const EngineOptions& options, const DeviceBudget& budget,
                                    RankEngine& engine) {
  const ModelLimits& formats = engine.source.formats;
  if (engine.driver == nullptr) {
    engine.device = MakeDevice(budget);
    BH_ASSIGN_OR_RETURN(engine.backend,
                        MakeBackend(options, engine.threads, formats, *engine.device));
    if (engine.topology.coordinator()) {
      LogActivationAdvice(options, formats);
    }
    return absl::OkStatus();
  }
  if (options.attention_dtype.has_value() && engine.topology.coordinator()) {
    BH_LOG(kWarning) << "--attention-dtype is for CPUs, and changes nothing on GPUs";
  }
  BH_RETURN_IF_ERROR(CheckDraftOnGpu(engine.source, engine.driver->properties().max_shared_bytes));
  BH_ASSIGN_OR_RETURN(engine.device, MakeDevice(budget, *engine.driver));
  BH_ASSIGN_OR_RETURN(engine.backend,
                      MakeBackend(formats, engine.source.config.model, *engine.device,
                                  *engine.driver, engine.choice.gemm_library));
  return absl::OkStatus();
}

// The group's limits and pool: every rank computes the same from the same budgets, before any
// weight is read.
absl::Status PlanMemory(const EngineOptions& options, Group& group, const ServeOptions* server,
                        RankEngine& engine) {
  const absl::Duration timeout = options.startup_timeout;
  GroupExchange& exchange = group.exchange();
  const auto report = server != nullptr ? server->report : std::nullopt;
  if (engine.driver == nullptr) BH_RETURN_IF_ERROR(LockHosts(group, timeout, engine));
  BH_ASSIGN_OR_RETURN(const HostsFound hosts, ProbeHosts(exchange, timeout, server, engine));
  BH_ASSIGN_OR_RETURN(std::vector<DeviceBudget> budgets,
                      FindBudgets(options, group, hosts, engine));
  BH_RETURN_IF_ERROR(RunPhase(exchange, "backend", timeout, [&] {
    return CreateDeviceAndBackend(options, budgets[engine.topology.rank], engine);
  }));
  engine.ledger = std::make_unique<MemoryLedger>(*engine.device);
  engine.source.formats.transport = engine.choice.transport;
  const ModelConfig& config = engine.source.config.model;
  const DeviceKind kind = engine.driver != nullptr ? DeviceKind::kGpu : DeviceKind::kCpu;
  const std::optional<ModelShape> draft = engine.source.draft_shape();
  const ModelCapacity model(config, engine.source.formats, options, *engine.backend, kind, draft);
  const HostAvailability available = AvailabilityOf(hosts.limits, budgets);
  absl::StatusOr<GroupPlan> planned = PlanGroup(model, budgets, hosts.request, available);
  if (!planned.ok()) return MarkAgreed(planned.status());  // equal inputs: equal on every rank
  BH_RETURN_IF_ERROR(FinalizePlan(options, hosts, PlanAgainOnHosts(hosts, budgets, kind, engine),
                                  report, *planned, engine));
  BH_RETURN_IF_ERROR(
      MarkAgreed(CheckDefaultMaxTokens(options, config, engine.capacity.limits.max_model_len)));
  const std::vector<DeviceBudget> held = planned->budgets();
  BH_ASSIGN_OR_RETURN(ShardPlan plan, model.Split(held));
  engine.plan = std::make_unique<ShardPlan>(std::move(plan));
  engine.limits = engine.source.formats;
  engine.limits.Limits::operator=(engine.capacity.limits);
  if (draft.has_value()) {
    BH_ASSIGN_OR_RETURN(ShardPlan split, SplitDraft(*draft, engine.topology.size));
    engine.draft = std::make_unique<DraftEngine>(std::move(split));
    engine.draft->limits = DraftLimitsOf(*draft, engine.limits);
  }
  if (DefersKvAllocation(engine)) {
    engine.limits.num_kv_blocks = WarmUpBlocks(SchedulerLimitsOf(engine, options, 1));
    if (draft.has_value()) engine.draft->limits.num_kv_blocks = engine.limits.num_kv_blocks;
  }
  return absl::OkStatus();
}

absl::Status AllocateArenas(Group& group, absl::Duration timeout, absl::Time begun,
                            RankEngine& engine) {
  MemoryLedger& ledger = *engine.ledger;
  const int rank = engine.topology.rank;
  const int64_t blocks = engine.limits.num_kv_blocks;
  const CommLimits comm_limits = CommLimitsOf(engine);
  const RankNeeds needs = FootprintOf(*engine.plan, rank, engine.limits, *engine.backend);
  RankNeeds all = needs;
  RankNeeds of_draft;
  DraftEngine* const draft = engine.draft.get();
  if (draft != nullptr) {
    of_draft = FootprintOf(draft->plan, rank, draft->limits, *engine.backend);
    all = WithDraftModel(needs, of_draft, comm_limits, rank, engine.topology.size);
  }
  ClaimArenas(all, blocks, ledger);
  // Before the KV pool, which can only grow if it is the last allocation.
  BH_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> comm,
                      ConnectRanks(group, comm_limits, *engine.device, engine.driver.get(), ledger,
                                   ConnectTimeout(timeout, absl::Now() - begun)));
  engine.comm = std::make_unique<TimedCommunicator>(std::move(comm));
  ArenasOfBoth arenas;
  const auto take = [&]() -> absl::Status {
    if (draft == nullptr) {
      BH_ASSIGN_OR_RETURN(arenas.model, TakeArenas(needs, blocks, ledger));
    } else {
      BH_ASSIGN_OR_RETURN(arenas, TakeArenas(needs, of_draft, blocks, ledger));
    }
    if (engine.device->host_memory()) return absl::OkStatus();
    BH_ASSIGN_OR_RETURN(engine.step_figures,
                        engine.device->AllocateHost(StepFiguresBytes(engine.topology.size)));
    return absl::OkStatus();
  };
  BH_RETURN_IF_ERROR(RunPhase(group.exchange(), "arenas", timeout, [&] {
    const absl::Status taken = take();
    return taken.ok() ? taken : WithExitCode(taken, ExitCode::kDoesNotFit);
  }));
  engine.runner = std::make_unique<ModelRunner>(
      *engine.plan, rank, engine.limits, std::move(arenas.model), *engine.backend, *engine.comm);
  if (draft == nullptr) return absl::OkStatus();
  draft->runner = std::make_unique<ModelRunner>(
      draft->plan, rank, draft->limits, std::move(arenas.draft), *engine.backend, *engine.comm);
  draft->steps = std::make_unique<SpeculativeRunner>(*engine.runner, *draft->runner);
  return absl::OkStatus();
}

// Planned bytes must equal taken bytes.
absl::Status Seal(GroupExchange& exchange, absl::Duration timeout, RankEngine& engine) {
  const RankCapacity& planned = engine.capacity.ranks[engine.topology.rank];
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    BH_CHECK(engine.ledger->claimed(static_cast<MemoryCategory>(i)) == planned.arena_bytes[i]);
  }
  engine.ledger->Seal();
  if (engine.driver == nullptr) {
    engine.lock.reset();
    return absl::OkStatus();
  }
  return RunPhase(exchange, "seal", timeout, [&] { return WatchGpu(engine); });
}

// Loads the model, or the draft model, whose phases are named so.
absl::StatusOr<WarmUpResult> WarmUpModel(ModelRunner& runner, const SchedulerLimits& limits,
                                         absl::string_view whose, bool on_gpu,
                                         absl::Duration timeout, Group& group) {
  GroupExchange& exchange = group.exchange();
  runner.UseWorkspace();
  BH_RETURN_IF_ERROR(RunPhase(exchange, absl::StrCat("warm-up of products", whose), timeout,
                              [&] { return runner.WarmUpProducts(); }));
  const absl::Status checked = CheckLogits(runner, exchange.topology().coordinator());
  BH_RETURN_IF_ERROR(AgreeOrAbort(group, absl::StrCat("check of logits", whose), checked, timeout));
  absl::StatusOr<WarmUpResult> warm_up = WarmUp(
      runner, limits, on_gpu ? kGpuWarmUpTime : kCpuWarmUpTime, exchange, timeout, &MonotonicNanos);
  absl::Status status = warm_up.status();
  if (status.ok() && on_gpu && limits.drafts.num_speculative_tokens > 0) {
    status = WarmUpDrafts(runner, limits, exchange.topology().coordinator());
  }
  if (status.ok()) status = runner.WarmUpDecodes();
  BH_RETURN_IF_ERROR(AgreeOrAbort(group, absl::StrCat("warm-up", whose), status, timeout));
  if (exchange.topology().coordinator()) {
    BH_LOG(kVerbose) << (warm_up->measured ? "measured at warm-up" : "estimated from smaller steps")
                     << ": a step" << whose << " of " << warm_up->chunk_tokens << " tokens takes "
                     << StepTimeText(warm_up->chunk);
  }
  return warm_up;
}

absl::Status WarmUpSteps(const EngineOptions& options, Group& group, RankEngine& engine) {
  const absl::Duration timeout = options.startup_timeout;
  const bool on_gpu = engine.driver != nullptr;
  std::optional<WarmUpResult> draft;
  if (engine.draft != nullptr) {
    BH_ASSIGN_OR_RETURN(draft,
                        WarmUpModel(*engine.draft->runner, SchedulerLimits{engine.draft->limits},
                                    " of the draft model", on_gpu, timeout, group));
  }
  BH_ASSIGN_OR_RETURN(const WarmUpResult warm_up,
                      WarmUpModel(*engine.runner, SchedulerLimitsOf(engine, options, 1), "", on_gpu,
                                  timeout, group));
  engine.step_limits = StepTimeLimitsFrom(warm_up, options.step_timeout, draft);
  if (engine.topology.coordinator()) {
    BH_LOG(kVerbose) << "step timeout " << absl::FormatDuration(engine.step_limits.timeout);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<DeviceBudget>> GatherBudgets(GroupExchange& exchange,
                                                        absl::Duration timeout,
                                                        const DeviceBudget& mine) {
  BH_ASSIGN_OR_RETURN(const std::vector<internal::DeviceBudget> ranks,
                      GatherMessages(exchange, ToProto(mine), timeout));
  std::vector<DeviceBudget> budgets;
  for (const internal::DeviceBudget& rank : ranks) budgets.push_back(FromProto(rank));
  return budgets;
}

absl::Status RefuseCapacity(const EngineOptions& options, const PlanAgain& plan_again,
                            const RankEngine& engine, const std::optional<std::string>& report,
                            absl::Status why) {
  const Capacity& capacity = engine.capacity;
  if (engine.topology.coordinator()) {
    const Remedies remedies =
        FindRemedies(options, engine.source.formats, {engine.capacity, engine.host}, plan_again);
    LogLines(LogLevel::kInfo, CapacityTable(capacity));
    LogLines(LogLevel::kInfo, RemediesText(remedies));
    if (report.has_value()) {
      BH_RETURN_IF_ERROR(WriteReport(*report, ReportOf(capacity, remedies, engine.facts())));
    }
  }
  if (why.ok()) {
    why = WithExitCode(absl::ResourceExhaustedError(ShortageText(capacity, engine.host)),
                       ExitCode::kDoesNotFit);
  }
  return MarkAgreed(std::move(why));
}

absl::StatusOr<std::unique_ptr<RankEngine>> StartEngine(
    const EngineOptions& options, Group& group, const ServeOptions* server,
    const std::function<absl::Status(const RankEngine&)>& before_memory) {
  const absl::Time begun = absl::Now();
  auto engine = std::make_unique<RankEngine>();
  // Between hosts MPI may use the arenas of a sum that a drain interrupted until MPI_Finalize.
  const absl::Cleanup keep = [&] {
    if (IsDrained(group)) static_cast<void>(engine.release());
  };
  GroupExchange& exchange = group.exchange();
  const absl::Duration timeout = options.startup_timeout;
  engine->topology = exchange.topology();
  BH_RETURN_IF_ERROR(OpenRankDevice(options, group, *engine));
  BH_ASSIGN_OR_RETURN(engine->threads,
                      PlaceAndCountThreads(options, engine->choice.cuda, exchange));
  group.AllowSpinning(engine->threads.may_spin);
  internal::RankInputs inputs;
  BH_RETURN_IF_ERROR(RunPhase(exchange, "model", timeout, [&]() -> absl::Status {
    if (engine->choice.cuda) BH_RETURN_IF_ERROR(CheckFlagsOnGpu(options));
    BH_RETURN_IF_ERROR(ReadModel(options, *engine));
    BH_ASSIGN_OR_RETURN(inputs, RankInputsOf(engine->source));
    return absl::OkStatus();
  }));
  BH_ASSIGN_OR_RETURN(const std::vector<internal::RankInputs> all,
                      GatherMessages(exchange, inputs, timeout));
  BH_RETURN_IF_ERROR(MarkAgreed(CompareInputs(engine->topology, all)));
  BH_RETURN_IF_ERROR(PlanMemory(options, group, server, *engine));
  BH_LOG(kInfo) << HeadLine(*engine);
  if (engine->draft != nullptr) BH_LOG(kInfo) << DraftLine(options, *engine);
  if (before_memory != nullptr) {
    BH_RETURN_IF_ERROR(
        RunPhase(exchange, "listener", timeout, [&] { return before_memory(*engine); }));
  }
  BH_RETURN_IF_ERROR(AllocateArenas(group, timeout, begun, *engine));
  BH_RETURN_IF_ERROR(LoadAllWeights(group, timeout, *engine));
  BH_RETURN_IF_ERROR(WarmUpSteps(options, group, *engine));
  if (DefersKvAllocation(*engine)) {
    const auto report = server != nullptr ? server->report : std::nullopt;
    BH_RETURN_IF_ERROR(TakeKvLast(options, group, report, *engine));
  }
  BH_RETURN_IF_ERROR(Seal(exchange, timeout, *engine));
  LogNumaBytes(engine->threads, engine->topology.rank);
  BH_ASSIGN_OR_RETURN(engine->clocks, MeasureClockOffsets(exchange, timeout, RealtimeNanos));
  return engine;
}

void LogReport(const RankEngine& engine) {
  LogLines(LogLevel::kVerbose, CapacityTable(engine.capacity));
  BH_LOG(kVerbose) << MoreRanksText(engine.source.config.model, engine.topology.size);
  BH_LOG(kInfo) << CapacityText(engine.capacity);
}

}  // namespace bulkhead
