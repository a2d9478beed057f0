#include "launcher/device_choice.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "bulkhead/internal/startup.pb.h"
#include "comm/nccl/nccl_communicator.h"
#include "launcher/gather_messages.h"
#include "memory/nvidia_driver.h"

namespace bulkhead {
namespace {

constexpr const char* kCommNames[] = {"auto", "staged", "nccl"};

using internal::RankDevices;

absl::Status Refusal(ExitCode code, const std::string& why) {
  return WithExitCode(absl::FailedPreconditionError(why), code);
}

RankDevices DevicesOf(const RankTopology& topology, const DevicesFound& found, RankDevice& mine) {
  RankDevices devices;
  if (!found.cuda.ok()) {
    devices.set_no_cuda(std::string(found.cuda.status().message()));
    devices.set_gpu_idle(absl::IsFailedPrecondition(found.cuda.status()));
    return devices;
  }
  mine.ordinal = topology.local_rank % static_cast<int>(found.cuda->size());
  mine.identity = (*found.cuda)[mine.ordinal];
  devices.set_uuid(mine.identity.uuid);
  devices.set_gpu(mine.identity.name);
  if (found.nccl_version.ok()) {
    devices.set_nccl_version(*found.nccl_version);
  } else {
    devices.set_no_nccl(std::string(found.nccl_version.status().message()));
  }
  if (found.gemm_library.ok()) {
    devices.set_gemm_library(*found.gemm_library);
  } else {
    devices.set_no_gemm_library(std::string(found.gemm_library.status().message()));
  }
  return devices;
}

std::string RankText(size_t rank, const RankTopology& topology) {
  return absl::StrCat("rank ", rank, " (host ", topology.hosts[rank], ")");
}

std::string RoundedSums(const RankDevice& device, const RankTopology& topology) {
  if (device.transport == Transport::kNccl) return "those of NCCL";
  if (topology.one_host()) return "none, since all ranks share their host's memory";
  return "those between hosts";
}

// The group's answer from all ranks' devices, the same on every rank.
class Choice {
 public:
  Choice(const EngineOptions& options, const RankTopology& topology, std::vector<RankDevices> ranks)
      : options_(options), topology_(topology), ranks_(std::move(ranks)) {}

  absl::Status Make(RankDevice& mine) const {
    if (const size_t without = FirstWithout(&RankDevices::no_cuda); without < ranks_.size()) {
      return TakeCpu(without, mine);
    }
    mine.cuda = true;
    const std::string& uuid = ranks_[topology_.rank].uuid();
    mine.sharers = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].uuid() != uuid) continue;
      if (mine.sharers++ == 0) mine.first_sharer = static_cast<int>(rank) == topology_.rank;
    }
    TakeProducts(mine);
    BH_RETURN_IF_ERROR(TakeTransport(mine));
    return CheckDuplicates(mine.transport);
  }

 private:
  // The lowest rank with a reason not to use it; the number of ranks if none has one.
  size_t FirstWithout(const std::string& (RankDevices::*reason)() const) const {
    const auto first = std::find_if(ranks_.begin(), ranks_.end(), [&](const RankDevices& rank) {
      return !(rank.*reason)().empty();
    });
    return static_cast<size_t>(first - ranks_.begin());
  }

  absl::Status TakeCpu(size_t without, RankDevice& mine) const {
    const bool asked = options_.device == DeviceOption::kCpu;
    const std::string why =
        absl::StrCat(RankText(without, topology_), " has no GPU: ", ranks_[without].no_cuda());
    if (options_.device == DeviceOption::kCuda) {
      return Refusal(ExitCode::kUsage, absl::StrCat("--device cuda: ", why, "; use --device cpu"));
    }
    // A machine with a GPU is not meant to serve from the CPU.
    const auto idle = std::find_if(ranks_.begin(), ranks_.end(),
                                   [](const RankDevices& rank) { return rank.gpu_idle(); });
    if (idle != ranks_.end()) {
      return Refusal(ExitCode::kUsage,
                     absl::StrCat(RankText(idle - ranks_.begin(), topology_),
                                  " has a GPU that it cannot use: ", idle->no_cuda(),
                                  "; --device cpu serves from the CPU"));
    }
    if (options_.comm != CommOption::kAuto) {
      return Refusal(ExitCode::kUsage,
                     absl::StrCat("--comm ", kCommNames[static_cast<int>(options_.comm)],
                                  " is for GPUs, and the ranks compute on CPUs",
                                  asked ? "" : absl::StrCat(": ", why), "; leave it out"));
    }
    mine = RankDevice();
    mine.text = asked ? "CPU" : absl::StrCat("CPU, since ", why);
    return absl::OkStatus();
  }

  // Every rank plans the library's memory for all ranks.
  void TakeProducts(RankDevice& mine) const {
    const size_t without = FirstWithout(&RankDevices::no_gemm_library);
    mine.gemm_library = without == ranks_.size();
    mine.products = mine.gemm_library
                        ? ranks_[0].gemm_library()
                        : absl::StrCat("our own kernels, since ", RankText(without, topology_),
                                       ": ", ranks_[without].no_gemm_library());
  }

  absl::Status TakeTransport(RankDevice& mine) const {
    const std::string& gpu = ranks_[0].gpu();
    if (ranks_.size() == 1) {
      mine.text = gpu;
      return absl::OkStatus();
    }
    const size_t without = FirstWithout(&RankDevices::no_nccl);
    const bool nccl = without == ranks_.size();
    if (options_.comm == CommOption::kNccl && !nccl) {
      return Refusal(ExitCode::kUsage, absl::StrCat("--comm nccl: ", RankText(without, topology_),
                                                    ": ", ranks_[without].no_nccl()));
    }
    if (options_.comm != CommOption::kStaged && nccl) {
      mine.transport = Transport::kNccl;
      mine.text = absl::StrCat(gpu, ", sums by NCCL ", ranks_[0].nccl_version());
      return absl::OkStatus();
    }
    mine.transport = Transport::kStaged;
    mine.text = absl::StrCat(gpu, ", sums staged through host memory",
                             options_.comm == CommOption::kStaged
                                 ? ""
                                 : absl::StrCat(", since ", RankText(without, topology_), ": ",
                                                ranks_[without].no_nccl()));
    return absl::OkStatus();
  }

  // Ranks on one GPU share its memory and time: only if requested.
  absl::Status CheckDuplicates(Transport transport) const {
    const bool nccl_can = options_.comm == CommOption::kNccl &&
                          ranks_[0].nccl_version() >= kNcclVersionOfSharedDevices;
    if (options_.comm == CommOption::kStaged || nccl_can) return absl::OkStatus();
    std::map<std::string, size_t> first;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto [other, alone] = first.emplace(ranks_[rank].uuid(), rank);
      if (alone) continue;
      return Refusal(
          ExitCode::kUsage,
          absl::StrCat("ranks ", other->second, " and ", rank, " would share one GPU, ",
                       ranks_[rank].gpu(), " (", ranks_[rank].uuid(), ") of host ",
                       topology_.hosts[rank], "; start one rank per GPU, show each rank its own ",
                       "MIG instance with CUDA_VISIBLE_DEVICES, or share on purpose with --comm ",
                       "staged", transport == Transport::kNccl ? " (or NCCL 2.30 or later)" : ""));
    }
    return absl::OkStatus();
  }

  const EngineOptions& options_;
  const RankTopology& topology_;
  const std::vector<RankDevices> ranks_;
};

}  // namespace

absl::StatusOr<RankDevice> ChooseDevice(const EngineOptions& options, GroupExchange& exchange,
                                        const std::function<DevicesFound()>& found,
                                        absl::Duration timeout) {
  const RankTopology& topology = exchange.topology();
  const absl::Status not_asked = absl::UnavailableError("--device cpu");
  RankDevice mine;
  const bool asked = options.device == DeviceOption::kCpu;
  const DevicesFound all = asked ? DevicesFound{not_asked, not_asked} : found();
  const RankDevices devices = DevicesOf(topology, all, mine);
  BH_ASSIGN_OR_RETURN(std::vector<RankDevices> ranks, GatherMessages(exchange, devices, timeout));
  const absl::Status made = Choice(options, topology, std::move(ranks)).Make(mine);
  if (!made.ok()) return MarkAgreed(made);  // equal inputs: the same on every rank
  const bool looked = !absl::IsUnimplemented(all.cuda.status()) || !NvidiaDriverVersion().empty();
  if (!mine.cuda && !asked && looked) mine.level = LogLevel::kInfo;
  if (options.all_reduce_dtype != DType::kF32) mine.rounded_sums = RoundedSums(mine, topology);
  return mine;
}

}  // namespace bulkhead
