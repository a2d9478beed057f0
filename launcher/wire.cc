#include "launcher/wire.h"

#include <algorithm>
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
#include "comm/mpi_group.h"
#include "comm/nccl_communicator.h"
#include "comm/single_group.h"
#include "comm/staged_communicator.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_sizes.h"
#include "kernels/cuda/gemm_library.h"
#include "kernels/cuda/write_late.h"
#include "memory/cuda_device.h"
#include "memory/cuda_runtime_driver.h"

namespace bulkhead {
namespace {

// What one rank tells the others: its host, its cores, how many of them its cgroups grant, the
// threads it was told to use (0: its share).
struct CoreClaim {
  std::string host;
  int num_threads = 0;
  double quota = 0;
  std::vector<int> cores;

  std::string Serialize() const {
    return absl::StrCat(num_threads, " ", quota, " ", absl::StrJoin(cores, ","), " ", host);
  }
  static absl::StatusOr<CoreClaim> Parse(absl::string_view text) {
    const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(' ', 3));
    CoreClaim claim;
    if (parts.size() != 4 || !absl::SimpleAtoi(parts[0], &claim.num_threads) ||
        !absl::SimpleAtod(parts[1], &claim.quota) || !(claim.quota > 0)) {
      return absl::InternalError(absl::StrCat("not a rank's cores: '", text, "'"));
    }
    for (const absl::string_view core : absl::StrSplit(parts[2], ',')) {
      if (!absl::SimpleAtoi(core, &claim.cores.emplace_back()) || claim.cores.back() < 0 ||
          claim.cores.back() >= kMaxCores) {
        return absl::InternalError(absl::StrCat("not a core: '", core, "'"));
      }
    }
    claim.host = parts[3];
    return claim;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Group>> JoinGroup(const EngineOptions& options) {
  if (LaunchedAsGroup()) return NewMpiGroup(options.startup_timeout);
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

absl::StatusOr<ThreadConfig> ChooseThreads(std::optional<int> threads, GroupExchange& exchange,
                                           absl::Duration timeout) {
  const RankTopology& topology = exchange.topology();
  CoreClaim mine{topology.hosts[topology.rank], threads.value_or(0),
                 CoreQuota().value_or(kMaxCores), AllowedCores()};
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                      exchange.AllGather(mine.Serialize(), timeout));
  std::vector<int> sharers(kMaxCores, 0);  // ranks of this host that may use each core
  std::vector<CoreClaim> neighbours;
  for (const std::string& text : texts) {
    BH_ASSIGN_OR_RETURN(CoreClaim claim, CoreClaim::Parse(text));
    if (claim.host != mine.host) continue;
    for (const int core : claim.cores) ++sharers[core];
    neighbours.push_back(std::move(claim));
  }
  // The ranks of a host are taken to share one quota, as they do in a container.
  const auto threads_of = [&](const CoreClaim& claim) {
    if (claim.num_threads > 0) return claim.num_threads;
    double share = 0;
    for (const int core : claim.cores) share += 1.0 / sharers[core];
    share = std::min(share, claim.quota / static_cast<double>(neighbours.size()));
    return std::clamp(static_cast<int>(share + 1e-6), 1, kMaxThreads);
  };
  int all_threads = 0;
  for (const CoreClaim& claim : neighbours) all_threads += threads_of(claim);
  const auto used = std::count_if(sharers.begin(), sharers.end(), [](int n) { return n > 0; });
  ThreadConfig choice;
  choice.num_threads = threads_of(mine);
  choice.cores_allowed = static_cast<int>(mine.cores.size());
  choice.may_spin = all_threads <= std::min<double>(static_cast<double>(used), mine.quota) &&
                    choice.num_threads <= choice.cores_allowed;
  if (choice.num_threads > choice.cores_allowed) {
    BH_LOG(kWarning) << choice.num_threads << " threads may run on " << choice.cores_allowed
                     << " cores only; start with mpirun --bind-to none, or lower --threads";
  }
  return choice;
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
    case CpuIsa::kAvx512Vnni:
      return "avx512vnni";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kPlain:
      return "plain";
    case CpuIsa::kAuto:
      break;
  }
  return IsaName(PresentIsas().back());
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const EngineOptions& options,
                                                     const ThreadConfig& threads,
                                                     ActivationDType activation, Device& device) {
  auto backend = NewCpuBackend(device, {.num_threads = threads.num_threads,
                                        .isa = IsaNameOf(options.cpu_isa),
                                        .activation = activation,
                                        .may_spin = threads.may_spin});
  if (backend.ok()) return backend;
  return WithExitCode(backend.status(), absl::IsResourceExhausted(backend.status())
                                            ? ExitCode::kGroupNotUp  // no threads
                                            : ExitCode::kUsage);
}

absl::StatusOr<std::unique_ptr<BackendSizes>> MakeGpuSizes(const ModelLimits& formats, int head_dim,
                                                           bool gemm_library) {
  for (const WeightFormat weights : {formats.weights.layers, formats.weights.tables}) {
    const absl::Status known = CheckCudaFormats(weights, formats.kv_format, head_dim);
    if (!known.ok()) return WithExitCode(known, ExitCode::kUsage);
  }
  return NewCudaSizes(gemm_library);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const ModelLimits& formats, int head_dim,
                                                     Device& device, CudaDriver& driver,
                                                     bool gemm_library) {
  BH_RETURN_IF_ERROR(MakeGpuSizes(formats, head_dim, gemm_library).status());
  if (!gemm_library) return NewCudaBackend(device, driver);
  absl::StatusOr<std::unique_ptr<GemmLibrary>> library = NewCublasLt(driver);
  if (!library.ok()) return WithExitCode(library.status(), ExitCode::kGroupNotUp);
  return NewCudaBackend(device, driver, *std::move(library));
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectRanks(Group& group, const CommLimits& limits,
                                                           Device& device, CudaDriver* driver,
                                                           MemoryLedger& ledger,
                                                           absl::Duration timeout) {
  switch (limits.transport) {
    case Transport::kShared:
      break;
    case Transport::kStaged:
      return ConnectStaged(group, limits, device, ledger);
    case Transport::kNccl:
      BH_CHECK(driver != nullptr);
      return ConnectNccl(
          group, limits, *driver, ledger, timeout,
          [driver](float* out, int64_t count, int64_t first, int period, int offset) {
            WriteLate(*driver, out, count, first, period, offset);
          });
  }
  return group.Connect(limits, ledger);
}

}  // namespace bulkhead
