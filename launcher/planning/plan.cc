#include "launcher/planning/plan.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/exit_status.h"
#include "launcher/planning/capacity_report.h"
#include "launcher/planning/device_budget.h"
#include "launcher/planning/gpu_models.h"
#include "launcher/planning/model_capacity.h"
#include "launcher/planning/model_source.h"
#include "launcher/planning/plan_tables.h"
#include "launcher/whole_file.h"
#include "launcher/wire.h"
#include "memory/exit_code.h"
#include "memory/host_cores.h"
#include "memory/kv_format_name.h"
#include "memory/log.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

// As `serve` takes it (kernels/cuda/gemm_library.h), where it finds one.
bool UsesCublasLt() {
  const char* const named = std::getenv("BULKHEAD_CUBLASLT");
  return named == nullptr || *named != '\0';
}

// What the ranks of one configuration have.
class Budgeter {
 public:
  Budgeter(const EngineOptions& engine, const PlanOptions& options)
      : engine_(engine),
        gpu_(options.gpu.has_value() ? FindGpu(*options.gpu) : std::nullopt),
        nodes_(options.nodes) {}

  bool is_gpu() const { return gpu_.has_value() || engine_.device == DeviceChoice::kCuda; }

  absl::Status Check() const {
    absl::Status status;
    if (gpu_.has_value() && engine_.device == DeviceChoice::kCpu) {
      status = absl::InvalidArgumentError(
          absl::StrCat("--gpu ", gpu_->name, " and --device cpu: leave one of them out"));
    } else if (is_gpu() && !gpu_.has_value() && !engine_.device_memory.has_value()) {
      status = absl::InvalidArgumentError(
          "--device cuda: say which GPU to plan for with --gpu, or what it has with "
          "--device-memory");
    }
    return status.ok() ? status : WithExitCode(status, ExitCode::kUsage);
  }

  absl::StatusOr<std::vector<DeviceBudget>> Of(int size) const {
    const int per_node = (size + nodes_ - 1) / nodes_;
    const int num_threads = std::max(1, static_cast<int>(AllowedCores().size()) / per_node);
    std::vector<DeviceBudget> budgets;
    for (int rank = 0; rank < size; ++rank) {
      BH_ASSIGN_OR_RETURN(DeviceBudget budget,
                          is_gpu() ? GpuBudget(rank, size)
                                   : BudgetOf(engine_, rank, size, per_node,
                                              engine_.threads.value_or(num_threads)));
      if (nodes_ > 1) budget.host = absl::StrCat("node", rank / per_node);
      budgets.push_back(std::move(budget));
    }
    return budgets;
  }

 private:
  // Of an empty one.
  absl::StatusOr<DeviceBudget> GpuBudget(int rank, int size) const {
    GpuFound found;
    found.name = gpu_.has_value() ? gpu_->name : "cuda";
    found.total_bytes = gpu_.has_value() ? gpu_->usable_bytes : 0;
    found.free_bytes = found.total_bytes;
    return GpuBudgetOf(engine_, rank, size, found, GpuTransport(engine_.comm, size));
  }

  const EngineOptions& engine_;
  const std::optional<GpuModel> gpu_;
  const int nodes_;
};

// One configuration, planned. Its parts refer to each other: it stays where it was made.
struct Planned {
  EngineOptions engine;
  ModelSource source;
  std::unique_ptr<Device> device;  // of the CPU
  std::unique_ptr<BackendSizes> sizes;
  std::unique_ptr<Budgeter> budgeter;
  std::unique_ptr<ModelCapacity> model;
  std::vector<DeviceBudget> budgets;
  Capacity capacity;
};

absl::StatusOr<std::unique_ptr<Planned>> MakePlan(const EngineOptions& engine,
                                                  const PlanOptions& options) {
  auto plan = std::make_unique<Planned>();
  plan->engine = engine;
  BH_ASSIGN_OR_RETURN(plan->source, ReadModelSource(engine, Weights::kOptional));
  plan->budgeter = std::make_unique<Budgeter>(plan->engine, options);
  BH_RETURN_IF_ERROR(plan->budgeter->Check());
  BH_ASSIGN_OR_RETURN(plan->budgets, plan->budgeter->Of(engine.tensor_parallel_size.value_or(1)));
  if (plan->budgeter->is_gpu()) {
    BH_ASSIGN_OR_RETURN(
        plan->sizes,
        MakeGpuSizes(plan->source.formats, plan->source.config.model.head_dim, UsesCublasLt()));
  } else {
    plan->device = MakeDevice(plan->budgets[0]);
    BH_ASSIGN_OR_RETURN(plan->sizes,
                        MakeBackend(engine, {}, plan->source.formats.activation, *plan->device));
  }
  plan->model = std::make_unique<ModelCapacity>(
      plan->source.config.model, plan->source.formats, plan->engine, *plan->sizes,
      plan->budgeter->is_gpu() ? DeviceKind::kGpu : DeviceKind::kCpu);
  BH_ASSIGN_OR_RETURN(plan->capacity, plan->model->Plan(plan->budgets));
  return plan;
}

HostTerm HostOf(const Planned& plan, const PlanOptions& options) {
  return HostTermOf(plan.capacity, options.serve.max_num_queued_reqs,
                    plan.engine.enable_prefix_caching);
}

// What quantised weights save, exactly: scales and zeros count.
std::string WeightsText(const Planned& plan) {
  const WeightFormats& weights = plan.source.formats.weights;
  std::string text = absl::StrCat("weights: ", WeightFormatsText(weights));
  const absl::StatusOr<ShardPlan> split = plan.model->Split(plan.budgets);
  if (!IsQuantized(weights.layers) || !split.ok()) return text;
  const auto bytes = [&](const WeightFormats& held_as) {
    int64_t sum = 0;
    for (int rank = 0; rank < split->size(); ++rank)
      sum += StoredWeightBytes(*split, rank, held_as);
    return static_cast<double>(sum);
  };
  absl::StrAppendFormat(&text, ", %.2fx smaller than bfloat16",
                        bytes(WeightFormats::Of(DType::kBF16)) / bytes(weights));
  return text;
}

void PrintTables(const Planned& plan, const PlanOptions& options) {
  std::cout << CapacityTable(plan.capacity) << WeightsText(plan) << "\n";
  if (plan.budgeter->is_gpu()) {
    std::cout
        << "arenas are exact " << (UsesCublasLt() ? "with" : "without") << " cuBLASLt"
        << (plan.engine.device_memory.has_value()
                ? "\n"
                : "; the driver's part is a guess, and KV is what that leaves: serve measures "
                  "both\n");
  }
  if (options.gpu.has_value() &&
      FindGpu(*options.gpu)->compute_capability < kLeastComputeCapability) {
    std::cout << *options.gpu << ": planned, not runnable (older than compute capability 8.0)\n";
  }
  if (!plan.capacity.fits)
    std::cout << RemediesText(plan.model->FindRemedies(plan.capacity)) << "\n";
  if (plan.capacity.fits) std::cout << HostText(HostOf(plan, options)) << "\n";
  std::cout << MoreRanksText(plan.source.config.model.num_key_value_heads,
                             static_cast<int>(plan.budgets.size()))
            << "\n";
  const bool equal_caps =
      !plan.engine.device_memory.has_value() || plan.engine.device_memory->of_rank.empty();
  if (equal_caps) {
    std::cout << "\nmore or fewer ranks:\n"
              << ScalingTable(*plan.model, [&](int size) { return plan.budgeter->Of(size); });
  }
  std::cout << "\nsequences that the KV cache holds at once:\n"
            << CurveText(LengthCurve(*plan.model, plan.budgets),
                         SequencesCurve(*plan.model, plan.budgets));
}

absl::Status Compare(const Planned& base, const PlanOptions& options) {
  std::vector<std::string> names;
  std::vector<Capacity> plans;
  if (options.compare.size() == 1) {
    names.emplace_back("this plan");
    plans.push_back(base.capacity);
  }
  for (size_t i = 0; i < options.compare.size(); ++i) {
    BH_ASSIGN_OR_RETURN(const auto other, MakePlan(options.compare[i], options));
    names.push_back(options.compare_flags[i]);
    plans.push_back(other->capacity);
  }
  std::cout << CompareTable(names, plans);
  return FlushStandardOutput();
}

absl::Status DrawCurve(const Planned& plan, const std::string& path) {
  std::ofstream file(path, std::ios::trunc);
  file << CurveSvg(LengthCurve(*plan.model, plan.budgets),
                   absl::StrCat(plan.source.config.model.architecture, ", ", plan.budgets.size(),
                                " ranks, KV in ", KvFormatName(plan.source.formats.kv_format)))
       << std::flush;
  if (file.good()) return absl::OkStatus();
  return CannotWrite("--svg", path);
}

}  // namespace

absl::Status RunPlan(const PlanOptions& options) {
  BH_ASSIGN_OR_RETURN(const auto made, MakePlan(options.serve.engine, options));
  const Planned& plan = *made;
  for (const std::string& warning : plan.source.config.warnings) BH_LOG(kWarning) << warning;
  if (options.svg.has_value()) BH_RETURN_IF_ERROR(DrawCurve(plan, *options.svg));
  if (!options.compare.empty()) return Compare(plan, options);
  const Capacity& capacity = plan.capacity;
  if (options.json) {
    std::cout << CapacityJson(
        capacity, capacity.fits ? Remedies() : plan.model->FindRemedies(capacity),
        {.kv_cache_dtype = std::string(KvFormatName(plan.source.formats.kv_format)),
         .weight_dtype = WeightFormatsText(plan.source.formats.weights),
         .host = HostOf(plan, options)});
  } else {
    PrintTables(plan, options);
  }
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  if (capacity.fits) return absl::OkStatus();
  return WithExitCode(absl::ResourceExhaustedError(ShortageText(capacity)), ExitCode::kDoesNotFit);
}

}  // namespace bulkhead
