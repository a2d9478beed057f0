#include "launcher/wire.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/host_cores.h"
#include "base/log.h"
#include "base/status.h"
#include "bulkhead/internal/startup.pb.h"
#include "comm/launch_environment.h"
#include "comm/local/local_group.h"
#include "comm/mpi/mpi_group.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/one_shot/one_shot_communicator.h"
#include "comm/staged/staged_communicator.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_sizes.h"
#include "kernels/cuda/gemm_library.h"
#include "kernels/cuda/peer_sum.h"
#include "kernels/cuda/round_sum.h"
#include "kernels/cuda/write_late.h"
#include "launcher/gather_messages.h"
#include "launcher/machine_code.h"
#include "launcher/version.h"
#include "memory/cuda_device.h"
#include "memory/cuda_runtime_driver.h"
#include "memory/peer_driver.h"
#include "shard/shard_plan.h"
#include "shard/tensor_row.h"

namespace bulkhead {
absl::StatusOr<std::unique_ptr<Group>> JoinGroup(const EngineOptions& options) {
  if (LaunchedAsGroup()) {
    // Undoes mpirun's default binding of each rank to a core. Before MPI starts threads.
    if (!options.numa.off &&
        ReadLaunchEnvironment(std::getenv, LauncherArguments()).bound_by_default) {
      UseCores(AllowedCores(getppid()));
    }
    return NewMpiGroup(options.startup_timeout);
  }
  return NewSingleGroup();
}

absl::Status CheckGroupSize(const EngineOptions& options, const RankTopology& topology) {
  const int wanted = options.tensor_parallel_size.value_or(topology.size);
  if (wanted == topology.size) return absl::OkStatus();
  return WithExitCode(
      absl::InvalidArgumentError(absl::StrCat(
          "--tensor-parallel-size ", wanted, " but the group has ", topology.size,
          topology.size == 1 ? " rank" : " ranks", "; start it with mpirun -n ", wanted)),
      ExitCode::kGroupNotUp);
}

std::unique_ptr<Device> MakeDevice(const DeviceBudget& budget) {
  return NewHostDevice(budget.probed ? 0 : budget.total_bytes);
}

DevicesFound FindDevices() {
  DevicesFound found{ListCudaDevices(), absl::UnavailableError("there is no GPU")};
  if (!found.cuda.ok()) return found;
  found.nccl_version = NcclVersion();
  found.gemm_library = CublasLtName();
  return found;
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceBudget& budget, CudaDriver& driver) {
  return CudaDevice::New(driver, budget.probed ? 0 : budget.total_bytes);
}

const char* IsaNameOf(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512Amx:
      return "avx512amx";
    case CpuIsa::kAvx512Bf16:
      return "avx512bf16";
    case CpuIsa::kAvx512Vnni:
      return "avx512vnni";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kPlain:
      return "plain";
    case CpuIsa::kPlainAmx:
      return "plain_amx";
    case CpuIsa::kAuto:
      break;
  }
  return IsaName(BestIsa());
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const EngineOptions& options,
                                                     const ThreadConfig& threads,
                                                     const ModelLimits& formats, Device& device) {
  auto backend = NewCpuBackend(device, {.num_threads = threads.num_threads,
                                        .isa = IsaNameOf(options.cpu_isa),
                                        .activation = formats.activation,
                                        .attention = formats.attention,
                                        .may_spin = threads.may_spin});
  if (backend.ok()) return backend;
  return WithExitCode(backend.status(), absl::IsResourceExhausted(backend.status())
                                            ? ExitCode::kGroupNotUp  // no threads
                                            : ExitCode::kUsage);
}

absl::Status CheckActivation(const EngineOptions& options, ActivationDType activation,
                             AttentionDType attention) {
  BH_ASSIGN_OR_RETURN(const Isa isa, ParseIsa(IsaNameOf(options.cpu_isa)));
  return CheckBf16Tiles(isa, activation, attention);
}

void LogActivationAdvice(const EngineOptions& options, const ModelLimits& formats) {
  const bool products = !options.activation_dtype.has_value() &&
                        formats.activation == ActivationDType::kF32 &&
                        formats.weights.layers == WeightFormat::kBF16;
  const bool attention =
      !options.attention_dtype.has_value() && options.activation_dtype != ActivationDType::kF32 &&
      formats.attention == AttentionDType::kF32 && formats.kv_format == KvFormat::kBF16;
  const Isa isa = ParseIsa(IsaNameOf(options.cpu_isa)).value_or(Isa::kPlain);
  const bool tiles = isa == Isa::kAvx512Amx && CheckBf16Tiles(isa, ActivationDType::kBf16Amx).ok();
  if ((!products && !attention) || (!tiles && isa != Isa::kAvx512Bf16)) return;
  const std::string flag = absl::StrCat(products ? "--activation-dtype" : "--attention-dtype",
                                        tiles ? " bf16-amx" : " bf16");
  BH_LOG(kInfo) << "this CPU has "
                << (tiles ? "AMX: if all ranks' CPUs have it, " : "avx512_bf16: ") << flag
                << (products
                        ? " makes prefill much faster; it rounds the inputs of matrix products, "
                          "and of attention over a bf16 KV cache, to bf16"
                        : " makes prefill of long prompts faster; it rounds queries and "
                          "attention probabilities to bf16, as PyTorch does");
}

// Whether a layer has unquantised matrices besides quantised ones.
bool KeepsMatrices(const ModelConfig& config) {
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const TensorRow& row : LayerTensors(config, layer)) {
      if (row.held_as == HeldAs::kKeptMatrix) return true;
    }
  }
  return false;
}

// For the whole weights: no rank's share has more or longer cells.
absl::Status CheckCells(const ModelConfig& config, const WeightFormats& held_as) {
  if (!IsQuantized(held_as.layers)) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(const ShardPlan whole,
                      ShardPlan::Create(config, 1, std::max(1, held_as.group_size)));
  for (const TensorRow& row : TensorsOf(whole.rank(0))) {
    if (row.is_vector() || row.expert > 0 || row.head > 0) continue;  // each is like the first
    const LinearShape shape = LinearShapeOf(row, whole.rank(0), held_as);
    if (!IsQuantized(shape.format)) continue;
    BH_RETURN_IF_ERROR(CheckCudaCells(row.Name(), shape));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BackendSizes>> MakeGpuSizes(const ModelLimits& formats,
                                                           const ModelConfig& config,
                                                           bool gemm_library,
                                                           int64_t max_shared_bytes) {
  // Formats that the CUDA backend's kernels do not support.
  std::string lacks;
  // Rows come in one format, which is bf16 for quantised weights.
  if (IsQuantized(formats.weights.layers) && formats.weights.tables == WeightFormat::kF16 &&
      KeepsMatrices(config)) {
    lacks = "matrices in float16 beside quantised ones in a layer (modules that are not converted)";
  }
  if (!lacks.empty()) {
    return WithExitCode(absl::UnimplementedError(absl::StrCat(
                            config.architecture, " needs ", lacks,
                            ", which the CUDA backend does not have: add --device cpu")),
                        ExitCode::kUsage);
  }
  for (const WeightFormat weights : {formats.weights.layers, formats.weights.tables}) {
    for (const int head_dim : {config.CachedDim(), config.full_heads.head_dim}) {
      const absl::Status known =
          CheckCudaFormats(weights, formats.kv_format, head_dim, config.latent.kv_rank);
      if (!known.ok()) return WithExitCode(known, ExitCode::kUsage);
    }
  }
  for (const int head_dim : {config.full_heads.head_dim, config.CachedDim()}) {
    if (config.latent.kv_rank > 0) break;
    const absl::Status fits = CheckCudaShared(formats.kv_format, head_dim, max_shared_bytes);
    if (!fits.ok()) return WithExitCode(fits, ExitCode::kUsage);
  }
  if (config.keeps_states()) {
    const absl::Status known = CheckCudaDelta(config.delta.key_dim, config.delta.value_dim);
    if (!known.ok()) return WithExitCode(known, ExitCode::kUsage);
  }
  const absl::Status cells = CheckCells(config, formats.weights);
  if (!cells.ok()) return WithExitCode(cells, ExitCode::kUsage);
  return NewCudaSizes(gemm_library);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const ModelLimits& formats,
                                                     const ModelConfig& config, Device& device,
                                                     CudaDriver& driver, bool gemm_library) {
  const CudaProperties& gpu = driver.properties();
  BH_RETURN_IF_ERROR(MakeGpuSizes(formats, config, gemm_library, gpu.max_shared_bytes).status());
  const std::string compiles =
      CompilesAtStart(CudaArchitectures(), gpu.capability_major, gpu.capability_minor);
  if (!compiles.empty()) BH_LOG(kWarning) << gpu.name << ": " << compiles;
  const bool in_fp8 = formats.activation == ActivationDType::kFp8;
  if (!gemm_library) return NewCudaBackend(device, driver, nullptr, in_fp8);
  absl::StatusOr<std::unique_ptr<GemmLibrary>> library = NewCublasLt(driver);
  if (!library.ok()) return WithExitCode(library.status(), ExitCode::kGroupNotUp);
  return NewCudaBackend(device, driver, *std::move(library), in_fp8);
}

namespace {

// UNAVAILABLE if the operator disables sums over peer memory, or peer memory in NCCL, because of
// links known not to work.
absl::Status WantsOneShot() {
  const auto is = [](const char* name, absl::string_view value) {
    const char* const set = std::getenv(name);
    return set != nullptr && value == set;
  };
  if (is("BULKHEAD_ONE_SHOT", "0")) return absl::UnavailableError("BULKHEAD_ONE_SHOT=0");
  if (is("NCCL_P2P_DISABLE", "1")) return absl::UnavailableError("NCCL_P2P_DISABLE=1");
  for (const char* const level : {"LOC", "0"}) {
    if (is("NCCL_P2P_LEVEL", level)) {
      return absl::UnavailableError(absl::StrCat("NCCL_P2P_LEVEL=", level));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectRanks(Group& group, const CommLimits& limits,
                                                           Device& device, CudaDriver* driver,
                                                           MemoryLedger& ledger,
                                                           absl::Duration timeout) {
  switch (limits.transport) {
    case Transport::kShared:
      break;
    case Transport::kStaged:
      return ConnectStaged(group, limits, device, ledger);
    case Transport::kNccl: {
      BH_CHECK(driver != nullptr);
      const WritePartialSumLate write_late = [driver](float* out, int64_t count, int64_t first,
                                                      int period, int offset) {
        WriteLate(*driver, out, count, first, period, offset);
      };
      BH_ASSIGN_OR_RETURN(
          std::unique_ptr<Communicator> nccl,
          ConnectNccl(group, limits, *driver, ledger, timeout,
                      {.write_late = write_late,
                       .round = [driver](const float* from, uint16_t* to,
                                         int64_t count) { RoundSum(*driver, from, to, count); },
                       .widen = [driver](const uint16_t* from, float* to,
                                         int64_t count) { WidenSum(*driver, from, to, count); }}));
      static PeerDriver* const peers = NewCudaPeerDriver().release();
      return ConnectOneShot(
          group, limits, *driver, *peers, ledger, timeout,
          {.sum = [driver](const PeerSums& sums, float* x,
                           int64_t count) { PeerSum(*driver, sums, x, count); },
           .sum_norm = [driver](
                           const PeerSums& sums, ConstMatrixView partial,
                           const ResidualNorm& norm) { PeerSumNorm(*driver, sums, partial, norm); },
           .write_late = write_late,
           .wanted = WantsOneShot()},
          std::move(nccl));
    }
  }
  return group.Connect(limits, ledger);
}

}  // namespace bulkhead
