#include "launcher/planning/plan.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/host_cores.h"
#include "base/log.h"
#include "base/message_json.h"
#include "base/status.h"
#include "launcher/exit_status.h"
#include "launcher/flags/gpu_models.h"
#include "launcher/planning/capacity_report.h"
#include "launcher/planning/changed_plan.h"
#include "launcher/planning/device_budget.h"
#include "launcher/planning/host_fit.h"
#include "launcher/planning/plan_tables.h"
#include "launcher/python_tool.h"
#include "launcher/report.h"
#include "launcher/wire.h"
#include "memory/host_memory.h"
#include "memory/kv_format_name.h"
#include "memory/numa.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

// Like `serve` (kernels/cuda/gemm_library.h), if available.
bool UsesCublasLt() {
  const char* const named = std::getenv("BULKHEAD_CUBLASLT");
  return named == nullptr || *named != '\0';
}

bool IsGpu(const EngineOptions& engine, const PlanOptions& options) {
  return options.gpu.has_value() || engine.device == DeviceOption::kCuda;
}

// Whether to plan with this machine's memory.
bool IsMeasured(const EngineOptions& engine, const PlanOptions& options) {
  return !IsGpu(engine, options) && !engine.device_memory.has_value();
}

int RanksOnHost(const PlanOptions& options, int size) {
  return (size + options.nodes - 1) / options.nodes;
}

absl::Status CheckDevice(const EngineOptions& engine, const PlanOptions& options) {
  absl::Status status;
  if (options.gpu.has_value() && engine.device == DeviceOption::kCpu) {
    status = absl::InvalidArgumentError(
        absl::StrCat("--gpu ", *options.gpu, " and --device cpu: leave one of them out"));
  } else if (IsGpu(engine, options) && !options.gpu.has_value() &&
             !engine.device_memory.has_value()) {
    status = absl::InvalidArgumentError(
        "--device cuda: give the GPU to plan for with --gpu, or its memory with --device-memory");
  } else if (IsGpu(engine, options)) {
    return CheckFlagsOnGpu(engine);
  }
  return status.ok() ? status : WithExitCode(status, ExitCode::kUsage);
}

// Checks that `serve` would refuse on this machine; nothing is known about others.
absl::Status CheckNuma(const EngineOptions& engine, int ranks) {
  if (engine.numa.nodes.empty()) return absl::OkStatus();
  const std::vector<std::vector<int>> cores(ranks, AllowedCores());
  return WithExitCode(PlaceRanks(ProbeNumaNodes(), cores, engine.numa).status(), ExitCode::kUsage);
}

int64_t MaxSharedBytes(const PlanOptions& options) {
  return options.gpu.has_value() ? FindGpu(*options.gpu)->max_shared_bytes() : kAnySharedBytes;
}

// An empty GPU, with the maximum estimated library memory.
absl::StatusOr<DeviceBudget> GpuBudget(const EngineOptions& engine, const PlanOptions& options,
                                       int rank, int size, int num_threads) {
  GpuFound found;
  found.name = options.gpu.value_or("cuda");
  found.total_bytes = options.gpu.has_value() ? FindGpu(*options.gpu)->usable_bytes : 0;
  found.free_bytes = found.total_bytes;
  const Transport transport = GpuTransport(engine.comm, size);
  BH_ASSIGN_OR_RETURN(DeviceBudget budget,
                      GpuBudgetOf(engine, rank, size, found, transport, num_threads));
  if (budget.probed) budget.driver_bytes = GuessDriver(transport, size).most_bytes;
  return budget;
}

// The ranks' budgets of one configuration. `measured`: this machine's memory, if planned with.
absl::StatusOr<std::vector<DeviceBudget>> BudgetsOfGroup(const EngineOptions& engine,
                                                         const PlanOptions& options,
                                                         const std::optional<HostMemory>& measured,
                                                         int size) {
  const int per_node = RanksOnHost(options, size);
  const int num_threads = engine.threads.value_or(
      std::max<int>(1, OnePerPhysicalCore(AllowedCores()).size() / per_node));
  std::optional<HostMemory> share = measured;
  if (share.has_value()) {
    share->total_bytes /= per_node;
    share->available_bytes /= per_node;
  }
  std::vector<DeviceBudget> budgets;
  for (int rank = 0; rank < size; ++rank) {
    BH_ASSIGN_OR_RETURN(DeviceBudget budget,
                        IsGpu(engine, options) ? GpuBudget(engine, options, rank, size, num_threads)
                                               : BudgetOf(engine, rank, size, share, num_threads));
    if (options.nodes > 1) budget.host = absl::StrCat("node", rank / per_node);
    budgets.push_back(std::move(budget));
  }
  return budgets;
}

// For a group of `size`. Memory besides --device-memory is not examined: the plan is for any
// machine.
Clients ClientsOfGroup(const EngineOptions& engine, const PlanOptions& options,
                       const std::string& dir, int size) {
  const int on_host = RanksOnHost(options, size);
  Clients clients;
  clients.request = HostRequestOf(options.serve, dir, on_host);
  clients.request->prefix_caching = engine.enable_prefix_caching;  // --compare may change it
  if (IsMeasured(engine, options)) {
    for (int rank = 0; rank < on_host; ++rank) clients.available.sharers.push_back(rank);
  }
  return clients;
}

// If the driver memory is estimated: its range, and the KV cache at its minimum.
std::optional<DriverRange> RangeOfDriver(const Planned& plan) {
  if (plan.kind == DeviceKind::kCpu || !plan.budgets.front().probed) return std::nullopt;
  const auto size = static_cast<int>(plan.budgets.size());
  const DriverGuess guess = GuessDriver(GpuTransport(plan.engine.comm, size), size);
  std::vector<DeviceBudget> budgets = plan.budgets;
  for (DeviceBudget& budget : budgets) budget.driver_bytes = guess.least_bytes;
  const absl::StatusOr<Capacity> most = plan.model->Fit(budgets);
  if (!most.ok()) return std::nullopt;
  return DriverRange{guess.least_bytes, guess.most_bytes, most->limits.kv_tokens()};
}

// The sum over all ranks; 0 if the model cannot be split.
double SumOverRanks(const Planned& plan, absl::FunctionRef<double(const RankShard&)> bytes_of) {
  const absl::StatusOr<ShardPlan> split = plan.model->Split(plan.budgets);
  double sum = 0;
  for (int rank = 0; split.ok() && rank < split->size(); ++rank) sum += bytes_of(split->rank(rank));
  return sum;
}

// Weight bytes read by steps of 1, 4, 16 and 64 tokens; equal without experts.
std::vector<std::pair<int, int64_t>> WeightReadsOf(const Planned& plan) {
  std::vector<int> batches = {1, 4, 16, 64};
  if (plan.source.config.model.moe.num_experts == 0) batches.resize(1);
  std::vector<double> sums(batches.size());
  const absl::StatusOr<ShardPlan> split = plan.model->Split(plan.budgets);
  for (int rank = 0; split.ok() && rank < split->size(); ++rank) {
    const std::vector<double> bytes =
        ReadWeightBytes(split->rank(rank), plan.source.formats.weights, batches);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += bytes[i];
  }
  std::vector<std::pair<int, int64_t>> reads;
  for (size_t i = 0; i < sums.size(); ++i) {
    reads.emplace_back(batches[i], static_cast<int64_t>(sums[i]));
  }
  return reads;
}

// Exact savings of quantised weights, including scales and zeros; and expert bytes read per step.
std::string WeightsText(const Planned& plan) {
  const WeightFormats& weights = plan.source.formats.weights;
  const MoeConfig& moe = plan.source.config.model.moe;
  std::string text = absl::StrCat("weights: ", WeightFormatsText(weights));
  const auto stored = [&](const WeightFormats& held_as) {
    return SumOverRanks(plan, [&](const RankShard& shard) {
      return static_cast<double>(StoredWeightBytes(shard, held_as));
    });
  };
  if (IsQuantized(weights.layers)) {
    absl::StrAppendFormat(&text, ", %.2fx smaller than bfloat16",
                          stored(WeightFormats::Of(DType::kBF16)) / stored(weights));
  }
  if (moe.num_experts == 0) return text;
  absl::StrAppend(&text, "; of ", FormatBytes(static_cast<int64_t>(stored(weights))));
  for (const auto& [tokens, bytes] : WeightReadsOf(plan)) {
    if (tokens == 1) {
      absl::StrAppend(&text, " one token reads ", FormatBytes(bytes), " (", moe.num_experts_per_tok,
                      " of ", moe.num_experts, " experts)");
    } else {
      absl::StrAppend(&text, ", a batch of ", tokens, " about ", FormatBytes(bytes));
    }
  }
  return text;
}

void PrintTables(const Planned& plan, const Remedies& remedies) {
  std::cout << CapacityTable(plan.capacity) << WeightsText(plan) << "\n";
  const absl::StatusOr<ShardPlan> split = plan.model->Split(plan.budgets);
  if (split.ok() && !plan.source.adapters.empty()) {
    std::cout << AdaptersText(split->rank(0), plan.source.formats.weights, *plan.sizes)
              << ", a part of the weights of rank 0\n";
  }
  if (plan.kind == DeviceKind::kGpu) {
    std::cout << "arenas are exact " << (UsesCublasLt() ? "with" : "without") << " cuBLASLt\n";
    if (const auto range = RangeOfDriver(plan); range.has_value()) {
      std::cout << DriverRangeText(plan.capacity, *range) << "\n";
    }
  }
  if (!plan.fits()) std::cout << RemediesText(remedies) << "\n";
  std::cout << HostText(plan.host) << "\n";
  std::cout << MoreRanksText(plan.source.config.model, static_cast<int>(plan.budgets.size()))
            << "\n";
  const bool equal_caps =
      !plan.engine.device_memory.has_value() || plan.engine.device_memory->of_rank.empty();
  if (equal_caps) {
    std::cout << "\nmore or fewer ranks:\n" << ScalingTableOf(plan);
  }
  std::cout << "\nsequences that the KV cache holds at once:\n"
            << CurveText(LengthCurve(*plan.model, plan.budgets),
                         SequencesCurve(*plan.model, plan.budgets));
}

v1::Report ReportOf(const Planned& plan, const Remedies& remedies) {
  v1::Report report =
      ReportOf(plan.capacity, remedies,
               {.kv_cache_dtype = std::string(KvFormatName(plan.source.formats.kv_format)),
                .weight_dtype = WeightFormatsText(plan.source.formats.weights),
                .host = plan.host,
                .driver = RangeOfDriver(plan)});
  for (const auto& [tokens, bytes] : WeightReadsOf(plan)) {
    v1::WeightRead& read = *report.add_weight_reads();
    read.set_tokens(tokens);
    read.set_bytes(bytes);
  }
  return report;
}

absl::Status Compare(const Planned& base, const PlanOptions& options) {
  std::vector<std::string> names;
  std::vector<Capacity> plans;
  nlohmann::ordered_json reports = nlohmann::ordered_json::array();
  const auto add = [&](const std::string& flags, const Planned& plan) {
    names.push_back(flags.empty() ? "this plan" : flags);
    plans.push_back(plan.capacity);
    if (!options.json) return;
    reports.push_back(MessageToJson(ReportOf(plan, RemediesOf(plan))));
    const std::vector<std::string> words =
        absl::StrSplit(flags, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    reports.back()["flags"] = words;
  };
  if (options.compare.size() == 1) add("", base);
  for (size_t i = 0; i < options.compare.size(); ++i) {
    const PlanOptions& compared = options.compare[i];
    const auto other = MakePlan(compared.serve.engine, compared);
    if (!other.ok()) {
      return WithExitCode(
          absl::Status(other.status().code(), absl::StrCat("--compare \"", options.compare_flags[i],
                                                           "\": ", other.status().message())),
          ExitCodeOf(other.status()));
    }
    add(options.compare_flags[i], **other);
  }
  std::cout << (options.json ? reports.dump(2) + "\n" : CompareTable(names, plans));
  return FlushStandardOutput();
}

// By the Python tool, from the report and the curve.
absl::Status Draw(const Planned& plan, const std::string& path) {
  nlohmann::ordered_json json = {
      {"title",
       absl::StrCat(plan.source.config.model.architecture, ", ", RanksText(plan.budgets.size()),
                    ", KV in ", KvFormatName(plan.source.formats.kv_format))},
      {"report", MessageToJson(ReportOf(plan, Remedies()))},
      {"curve", nlohmann::ordered_json::array()}};
  for (const Limits& point : LengthCurve(*plan.model, plan.budgets)) {
    json["curve"].push_back({point.max_num_seqs, point.max_model_len});
  }
  return RunPythonTool({"plan-plot", path}, json.dump());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Planned>> MakePlan(const EngineOptions& engine,
                                                  const PlanOptions& options) {
  auto plan = std::make_unique<Planned>();
  plan->engine = engine;
  plan->options = options;
  BH_ASSIGN_OR_RETURN(plan->source, ReadModelSource(engine, Weights::kOptional));
  BH_RETURN_IF_ERROR(CheckDevice(engine, options));
  // Once, so that other sizes and flags are compared on the same memory.
  const int size = engine.tensor_parallel_size.value_or(1);
  if (IsMeasured(engine, options)) {
    BH_RETURN_IF_ERROR(CheckNuma(engine, RanksOnHost(options, size)));
    BH_ASSIGN_OR_RETURN(plan->measured, ProbeHostMemory());
  }
  BH_ASSIGN_OR_RETURN(plan->budgets, BudgetsOfGroup(engine, options, plan->measured, size));
  plan->kind = IsGpu(engine, options) ? DeviceKind::kGpu : DeviceKind::kCpu;
  if (plan->kind == DeviceKind::kGpu) {
    BH_ASSIGN_OR_RETURN(plan->sizes, MakeGpuSizes(plan->source.formats, plan->source.config.model,
                                                  UsesCublasLt(), MaxSharedBytes(options)));
    BH_RETURN_IF_ERROR(CheckDraftOnGpu(plan->source, MaxSharedBytes(options)));
  } else {
    const absl::Status computes =
        CheckActivation(engine, plan->source.formats.activation, plan->source.formats.attention);
    if (!computes.ok()) {
      plan->source.config.warnings.push_back(
          absl::StrCat("serve would not start on this machine: ", computes.message()));
    }
    plan->device = MakeDevice(plan->budgets[0]);
    // No size depends on this CPU's features: the plan may be for another one.
    BH_ASSIGN_OR_RETURN(plan->sizes, MakeBackend(engine, {}, ModelLimits{}, *plan->device));
  }
  plan->model =
      std::make_unique<ModelCapacity>(plan->source.config.model, plan->source.formats, plan->engine,
                                      *plan->sizes, plan->kind, plan->source.draft_shape());
  const Clients clients =
      ClientsOfGroup(engine, options, plan->source.dir, static_cast<int>(plan->budgets.size()));
  BH_ASSIGN_OR_RETURN(GroupPlan group,
                      PlanGroup(*plan->model, plan->budgets, clients.request, clients.available));
  plan->free_budgets = std::exchange(plan->budgets, group.budgets());
  plan->capacity = std::move(group.capacity);
  plan->host = *group.host;
  return plan;
}

std::string ScalingTableOf(const Planned& plan) {
  return ScalingTable(*plan.model, [&](int size) -> absl::StatusOr<GroupPlan> {
    BH_ASSIGN_OR_RETURN(const std::vector<DeviceBudget> budgets,
                        BudgetsOfGroup(plan.engine, plan.options, plan.measured, size));
    const Clients clients = ClientsOfGroup(plan.engine, plan.options, plan.source.dir, size);
    return FitGroup(*plan.model, budgets, clients.request, clients.available);
  });
}

Remedies RemediesOf(const Planned& plan) {
  if (plan.fits()) return {};
  const BudgetsUnder budgets = [&](const EngineOptions& changed) {
    return plan.kind == DeviceKind::kCpu ? ChangedBudgets(changed, plan.free_budgets)
                                         : BudgetsOfGroup(changed, plan.options, plan.measured,
                                                          changed.tensor_parallel_size.value_or(1));
  };
  const ClientsUnder clients = [&](const Command& changed, int size) {
    Clients under = ClientsOfGroup(*EngineOf(changed), plan.options, plan.source.dir, size);
    under.request = ChangedRequest(under.request, changed);
    return under;
  };
  return FindRemedies(plan.engine, plan.source.formats, {plan.capacity, plan.host},
                      PlanAgainOn(plan.source, *plan.sizes, plan.kind, clients, budgets));
}

absl::Status RunPlan(const PlanOptions& options) {
  BH_ASSIGN_OR_RETURN(const auto made, MakePlan(options.serve.engine, options));
  const Planned& plan = *made;
  for (const std::string& warning : plan.source.config.warnings) BH_LOG(kWarning) << warning;
  if (options.plot.has_value()) BH_RETURN_IF_ERROR(Draw(plan, *options.plot));
  if (plan.fits()) {
    BH_RETURN_IF_ERROR(CheckDefaultMaxTokens(plan.engine, plan.source.config.model,
                                             plan.capacity.limits.max_model_len));
  }
  const Remedies remedies = RemediesOf(plan);
  if (options.serve.report.has_value()) {
    BH_RETURN_IF_ERROR(WriteReport(*options.serve.report, ReportOf(plan, remedies)));
  }
  if (!options.compare.empty()) return Compare(plan, options);
  const Capacity& capacity = plan.capacity;
  if (options.json) {
    std::cout << MessageToJsonText(ReportOf(plan, remedies));
  } else {
    PrintTables(plan, remedies);
  }
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  if (plan.fits()) return absl::OkStatus();
  return WithExitCode(absl::ResourceExhaustedError(ShortageText(capacity, plan.host)),
                      ExitCode::kDoesNotFit);
}

}  // namespace bulkhead
