#include "launcher/group/startup.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "comm/wait.h"
#include "launcher/gather_messages.h"
#include "launcher/group/gpu_start.h"
#include "launcher/group/group_flags.h"
#include "launcher/group/host_start.h"
#include "launcher/group/rank_inputs.h"
#include "launcher/planning/capacity_report.h"
#include "launcher/planning/changed_plan.h"
#include "launcher/planning/startup_messages.h"
#include "launcher/report.h"
#include "launcher/version.h"
#include "memory/kv_format_name.h"
#include "runtime/engine/logits_check.h"
#include "runtime/engine/warm_up.h"
#include "shard/model_folder.h"

namespace bulkhead {
namespace {

// A full chunk that takes longer is extrapolated, not run.
constexpr absl::Duration kWarmUpTime = absl::Seconds(10);

// Logs this rank's loading progress from time to time, until destroyed.
class LoadReporter {
 public:
  explicit LoadReporter(const LoadProgress& progress)
      : progress_(progress), begin_(absl::Now()), thread_([this] { Loop(); }) {}
  LoadReporter(const LoadReporter&) = delete;
  LoadReporter& operator=(const LoadReporter&) = delete;
  ~LoadReporter() {
    {
      const absl::MutexLock lock(&mutex_);
      done_ = true;
    }
    thread_.join();
  }
  void Report(const char* what) const {
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin_);
    const int64_t done = progress_.done_bytes;
    const int64_t total = progress_.total_bytes;
    const double rate = static_cast<double>(done) / std::max(seconds, 1e-3);
    BH_LOG(kInfo) << absl::StrFormat("%s: %3.0f %%, %s of %s, %s/s", what,
                                     total > 0 ? 100.0 * done / total : 100.0, FormatBytes(done),
                                     FormatBytes(total), FormatBytes(static_cast<int64_t>(rate)));
  }

 private:
  void Loop() {
    const absl::MutexLock lock(&mutex_);
    while (!mutex_.AwaitWithTimeout(absl::Condition(&done_), absl::Seconds(2))) {
      Report("loading weights");
    }
  }
  const LoadProgress& progress_;
  absl::Time begin_;
  absl::Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

void LogLines(LogLevel level, const std::string& text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    LogLine(level) << line;
  }
}

// What starts here, in one line.
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
  const std::string defaults = DefaultsText(engine.source.config.generation);
  if (!defaults.empty()) {
    BH_LOG(kInfo) << "generation_config.json: requests that say nothing else have " << defaults;
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(engine.source.dir);
  if (tokenizer.ok()) {
    engine.tokenizer = *std::move(tokenizer);
    return absl::OkStatus();
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
                        MakeBackend(options, engine.threads, formats.activation, *engine.device));
    return absl::OkStatus();
  }
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
  if (engine.driver == nullptr) BH_RETURN_IF_ERROR(LockHosts(exchange, timeout, engine));
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
  const ModelCapacity model(config, engine.source.formats, options, *engine.backend, kind);
  const HostAvailability available = AvailabilityOf(hosts.limits, budgets);
  absl::StatusOr<GroupPlan> planned = PlanGroup(model, budgets, hosts.request, available);
  if (!planned.ok()) return MarkAgreed(planned.status());  // equal inputs: equal on every rank
  BH_RETURN_IF_ERROR(FinalizePlan(options, hosts, PlanAgainOnHosts(hosts, budgets, kind, engine),
                                  report, *planned, engine));
  const std::vector<DeviceBudget> held = planned->budgets();
  BH_ASSIGN_OR_RETURN(ShardPlan plan, model.Split(held));
  engine.plan = std::make_unique<ShardPlan>(std::move(plan));
  engine.limits = engine.source.formats;
  engine.limits.Limits::operator=(engine.capacity.limits);
  if (DefersKvAllocation(engine)) {
    engine.limits.num_kv_blocks = WarmUpBlocks(SchedulerLimitsOf(engine, options, 1));
  }
  return absl::OkStatus();
}

absl::Status AllocateArenas(Group& group, absl::Duration timeout, RankEngine& engine) {
  MemoryLedger& ledger = *engine.ledger;
  const RankNeeds needs =
      FootprintOf(*engine.plan, engine.topology.rank, engine.limits, *engine.backend);
  ClaimArenas(needs, engine.limits.num_kv_blocks, ledger);
  // Before the KV pool, which can only grow if it is the last allocation.
  BH_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> comm,
                      ConnectRanks(group, CommLimitsOf(*engine.plan, engine.limits), *engine.device,
                                   engine.driver.get(), ledger, timeout));
  engine.comm = std::make_unique<TimedCommunicator>(std::move(comm));
  std::optional<ModelArenas> arenas;
  BH_RETURN_IF_ERROR(RunPhase(group.exchange(), "arenas", timeout, [&]() -> absl::Status {
    absl::StatusOr<ModelArenas> taken = TakeArenas(needs, engine.limits.num_kv_blocks, ledger);
    if (!taken.ok()) return WithExitCode(taken.status(), ExitCode::kDoesNotFit);
    arenas = *std::move(taken);
    return absl::OkStatus();
  }));
  engine.runner = std::make_unique<ModelRunner>(*engine.plan, engine.topology.rank, engine.limits,
                                                *std::move(arenas), *engine.backend, *engine.comm);
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

absl::Status LoadAll(Group& group, absl::Duration timeout, RankEngine& engine) {
  return RunPhase(group.exchange(), "weights", timeout, [&]() -> absl::Status {
    LoadProgress progress;
    const LoadReporter reporter(progress);
    const absl::Time begin = absl::Now();
    const auto group_is_lost = [&] {
      return !group.liveness().Check(absl::InfiniteDuration()).ok();
    };
    BH_RETURN_IF_ERROR(LoadWeights(*engine.source.checkpoint,
                                   engine.plan->rank(engine.topology.rank),
                                   engine.runner->weights(), *engine.backend,
                                   engine.threads.num_threads, &progress, group_is_lost));
    engine.load_time = absl::Now() - begin;
    engine.loaded_bytes = progress.done_bytes;
    reporter.Report("weights loaded");
    return absl::OkStatus();
  });
}

absl::Status WarmUpSteps(const EngineOptions& options, Group& group, RankEngine& engine) {
  const absl::Duration timeout = options.startup_timeout;
  BH_RETURN_IF_ERROR(RunPhase(group.exchange(), "warm-up of products", timeout,
                              [&] { return engine.runner->WarmUpProducts(); }));
  BH_RETURN_IF_ERROR(RunPhase(group.exchange(), "check of logits", timeout, [&] {
    return CheckLogits(*engine.runner, engine.topology.coordinator());
  }));
  const absl::StatusOr<WarmUpResult> warm_up =
      WarmUp(*engine.runner, SchedulerLimitsOf(engine, options, 1), kWarmUpTime, group.exchange(),
             timeout, &MonotonicNanos);
  absl::Status status = warm_up.status();
  if (status.ok()) status = engine.runner->WarmUpDecodes();
  BH_RETURN_IF_ERROR(Agree(group.exchange(), "warm-up", status, timeout));
  engine.step_limits = StepTimeLimitsFrom(*warm_up, options.step_timeout);
  if (engine.topology.coordinator()) {
    BH_LOG(kVerbose) << (warm_up->measured ? "measured at warm-up" : "estimated from smaller steps")
                     << ": a step of " << warm_up->chunk_tokens << " tokens takes "
                     << StepTimeText(warm_up->chunk) << "; step timeout "
                     << absl::FormatDuration(engine.step_limits.timeout);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunPhase(GroupExchange& exchange, absl::string_view name, absl::Duration timeout,
                      const Phase& work) {
  return Agree(exchange, name, work(), timeout);
}

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
    const EngineOptions& own, Group& group, const ServeOptions* server,
    const std::function<absl::Status(const RankEngine&)>& before_memory) {
  auto engine = std::make_unique<RankEngine>();
  GroupExchange& exchange = group.exchange();
  BH_ASSIGN_OR_RETURN(const EngineOptions options, FlagsOfGroup(own, exchange));
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
  if (before_memory != nullptr) {
    BH_RETURN_IF_ERROR(
        RunPhase(exchange, "listener", timeout, [&] { return before_memory(*engine); }));
  }
  BH_RETURN_IF_ERROR(AllocateArenas(group, timeout, *engine));
  BH_RETURN_IF_ERROR(LoadAll(group, timeout, *engine));
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

SchedulerLimits SchedulerLimitsOf(const RankEngine& engine, const EngineOptions& options,
                                  int max_num_queued_reqs) {
  SchedulerLimits limits{engine.limits};
  limits.max_num_queued_reqs = max_num_queued_reqs;
  limits.max_num_queued_tokens = int64_t{max_num_queued_reqs} * engine.limits.max_model_len;
  limits.admission = options.admission;
  limits.policy = options.scheduling_policy;
  limits.prefix_caching = options.enable_prefix_caching;
  limits.drafts = options.drafts;
  if (engine.source.config.model.keeps_states()) {
    limits.state_tokens = std::max(kStateBlock, limits.block_tokens);  // both powers of two
  }
  if (engine.runner != nullptr) {  // otherwise nothing runs yet
    limits.depth = engine.runner->depth();
    limits.pads_decodes = engine.runner->has_decode_graphs();
  }
  return limits;
}

void LogReport(const RankEngine& engine) {
  LogLines(LogLevel::kVerbose, CapacityTable(engine.capacity));
  BH_LOG(kVerbose) << MoreRanksText(engine.source.config.model, engine.topology.size);
  BH_LOG(kInfo) << CapacityText(engine.capacity);
}

ReportFacts RankEngine::facts() const {
  return {.kv_cache_dtype = std::string(KvFormatName(source.formats.kv_format)),
          .weight_dtype = WeightFormatsText(source.formats.weights),
          .device_allocations_after_ready =
              ledger == nullptr ? 0 : static_cast<uint64_t>(ledger->refused_after_seal()),
          .host = host};
}

InstrumentedStepRunner InstrumentedStepRunnerOf(RankEngine& engine, RankFigures& figures,
                                                RankStepStats* board) {
  return InstrumentedStepRunner(*engine.runner, *engine.comm,
                                CommLimitsOf(*engine.plan, engine.limits).max_sum_elements, figures,
                                board, engine.device->host_memory() ? nullptr : engine.device.get(),
                                engine.watch.get());
}

Coordinator::Options CoordinatorOptions(const RankEngine& engine, const SchedulerLimits& limits) {
  Coordinator::Options options;
  options.limits = limits;
  options.eos_ids.assign(engine.source.config.model.eos_token_ids.begin(),
                         engine.source.config.model.eos_token_ids.end());
  options.tokenizer = engine.tokenizer.get();
  options.costs = [&engine] {
    StepCosts costs;
    if (engine.device->host_memory()) costs.collective_ns = engine.comm->seconds() * 1e9;
    costs.sampling_ns = engine.runner->sampling_ns();
    return costs;
  };
  options.now_ns = [] { return static_cast<uint64_t>(MonotonicNanos()); };
  return options;
}

}  // namespace bulkhead
