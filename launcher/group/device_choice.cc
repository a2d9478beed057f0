#include "launcher/group/device_choice.h"

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
#include "comm/nccl_communicator.h"

namespace bulkhead {
namespace {

constexpr const char* kDeviceNames[] = {"auto", "cpu", "cuda"};
constexpr const char* kCommNames[] = {"auto", "staged", "nccl"};

// One rank's findings, exchanged as text, one line each.
struct Claim {
  std::string requested;  // --device and --comm
  std::string no_cuda;    // why this rank has no GPU; "" if it has one
  bool gpu_idle = false;  // this build cannot use the GPU with the machine's driver
  std::string uuid;
  std::string gpu;      // its name
  std::string no_nccl;  // the reason; "" if available
  int nccl_version = 0;
  std::string gemm_library;     // its name
  std::string no_gemm_library;  // the reason; "" if available

  std::string Serialize() const {
    std::vector<std::string> lines = {requested,    no_cuda,         uuid,
                                      gpu,          no_nccl,         absl::StrCat(nccl_version),
                                      gemm_library, no_gemm_library, gpu_idle ? "1" : ""};
    for (std::string& line : lines) line = absl::StrReplaceAll(line, {{"\n", " "}});
    return absl::StrJoin(lines, "\n");
  }
  static absl::StatusOr<Claim> Parse(const std::string& text) {
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    Claim claim;
    if (lines.size() != 9 || !absl::SimpleAtoi(lines[5], &claim.nccl_version)) {
      return absl::InternalError(absl::StrCat("not a rank's device: '", text, "'"));
    }
    claim.requested = lines[0];
    claim.no_cuda = lines[1];
    claim.uuid = lines[2];
    claim.gpu = lines[3];
    claim.no_nccl = lines[4];
    claim.gemm_library = lines[6];
    claim.no_gemm_library = lines[7];
    claim.gpu_idle = !lines[8].empty();
    return claim;
  }
};

absl::Status Refusal(ExitCode code, const std::string& why) {
  return WithExitCode(absl::FailedPreconditionError(why), code);
}

Claim ClaimOf(const EngineOptions& options, const RankTopology& topology, const DevicesFound& found,
              RankDevice& mine) {
  Claim claim;
  claim.requested = absl::StrCat("--device ", kDeviceNames[static_cast<int>(options.device)],
                                 " --comm ", kCommNames[static_cast<int>(options.comm)]);
  if (!found.cuda.ok()) {
    claim.no_cuda = std::string(found.cuda.status().message());
    claim.gpu_idle = absl::IsFailedPrecondition(found.cuda.status());
    return claim;
  }
  mine.ordinal = topology.local_rank % static_cast<int>(found.cuda->size());
  mine.identity = (*found.cuda)[mine.ordinal];
  claim.uuid = mine.identity.uuid;
  claim.gpu = mine.identity.name;
  if (found.nccl_version.ok()) {
    claim.nccl_version = *found.nccl_version;
  } else {
    claim.no_nccl = std::string(found.nccl_version.status().message());
  }
  if (found.gemm_library.ok()) {
    claim.gemm_library = *found.gemm_library;
  } else {
    claim.no_gemm_library = std::string(found.gemm_library.status().message());
  }
  return claim;
}

std::string RankText(size_t rank, const RankTopology& topology) {
  return absl::StrCat("rank ", rank, " (host ", topology.hosts[rank], ")");
}

// The group's decision from all claims, equal on every rank.
class Choice {
 public:
  Choice(const EngineOptions& options, const RankTopology& topology, std::vector<Claim> claims)
      : options_(options), topology_(topology), claims_(std::move(claims)) {}

  absl::Status Make(RankDevice& mine) const {
    BH_RETURN_IF_ERROR(CheckRequestedFlags());
    if (const size_t without = FirstWithout(&Claim::no_cuda); without < claims_.size()) {
      return TakeCpu(without, mine);
    }
    mine.cuda = true;
    const std::string& uuid = claims_[topology_.rank].uuid;
    mine.sharers = 0;
    for (size_t rank = 0; rank < claims_.size(); ++rank) {
      if (claims_[rank].uuid != uuid) continue;
      if (mine.sharers++ == 0) mine.first_sharer = static_cast<int>(rank) == topology_.rank;
    }
    TakeProducts(mine);
    BH_RETURN_IF_ERROR(TakeTransport(mine));
    return CheckDuplicates(mine.transport);
  }

 private:
  absl::Status CheckRequestedFlags() const {
    for (size_t rank = 1; rank < claims_.size(); ++rank) {
      if (claims_[rank].requested == claims_[0].requested) continue;
      return Refusal(ExitCode::kGroupNotUp,
                     absl::StrCat(RankText(rank, topology_), " has ", claims_[rank].requested,
                                  " and rank 0 has ", claims_[0].requested,
                                  "; start every rank with the same flags"));
    }
    return absl::OkStatus();
  }

  // The lowest rank with a reason not to have it; the number of ranks if none.
  size_t FirstWithout(std::string Claim::*reason) const {
    const auto first = std::find_if(claims_.begin(), claims_.end(),
                                    [&](const Claim& claim) { return !(claim.*reason).empty(); });
    return static_cast<size_t>(first - claims_.begin());
  }

  absl::Status TakeCpu(size_t without, RankDevice& mine) const {
    const bool asked = options_.device == DeviceOption::kCpu;
    const std::string why =
        absl::StrCat(RankText(without, topology_), " has no GPU: ", claims_[without].no_cuda);
    if (options_.device == DeviceOption::kCuda) {
      return Refusal(ExitCode::kUsage, absl::StrCat("--device cuda: ", why, "; use --device cpu"));
    }
    // A host with a GPU is not meant to serve from the CPU.
    const auto idle = std::find_if(claims_.begin(), claims_.end(),
                                   [](const Claim& claim) { return claim.gpu_idle; });
    if (idle != claims_.end()) {
      return Refusal(ExitCode::kUsage,
                     absl::StrCat(RankText(idle - claims_.begin(), topology_),
                                  " has a GPU that it cannot use: ", idle->no_cuda,
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
    const size_t without = FirstWithout(&Claim::no_gemm_library);
    mine.gemm_library = without == claims_.size();
    mine.products = mine.gemm_library
                        ? claims_[0].gemm_library
                        : absl::StrCat("our own kernels, since ", RankText(without, topology_),
                                       ": ", claims_[without].no_gemm_library);
  }

  absl::Status TakeTransport(RankDevice& mine) const {
    const std::string& gpu = claims_[0].gpu;
    if (claims_.size() == 1) {
      mine.text = gpu;
      return absl::OkStatus();
    }
    const size_t without = FirstWithout(&Claim::no_nccl);
    const bool nccl = without == claims_.size();
    if (options_.comm == CommOption::kNccl && !nccl) {
      return Refusal(ExitCode::kUsage, absl::StrCat("--comm nccl: ", RankText(without, topology_),
                                                    ": ", claims_[without].no_nccl));
    }
    if (options_.comm != CommOption::kStaged && nccl) {
      mine.transport = Transport::kNccl;
      mine.text = absl::StrCat(gpu, ", sums by NCCL ", claims_[0].nccl_version);
      return absl::OkStatus();
    }
    mine.transport = Transport::kStaged;
    mine.text = absl::StrCat(gpu, ", sums staged through host memory",
                             options_.comm == CommOption::kStaged
                                 ? ""
                                 : absl::StrCat(", since ", RankText(without, topology_), ": ",
                                                claims_[without].no_nccl));
    return absl::OkStatus();
  }

  // Ranks on one GPU share its memory and time: only if requested.
  absl::Status CheckDuplicates(Transport transport) const {
    const bool nccl_can = options_.comm == CommOption::kNccl &&
                          claims_[0].nccl_version >= kNcclVersionOfSharedDevices;
    if (options_.comm == CommOption::kStaged || nccl_can) return absl::OkStatus();
    std::map<std::string, size_t> first;
    for (size_t rank = 0; rank < claims_.size(); ++rank) {
      const auto [other, alone] = first.emplace(claims_[rank].uuid, rank);
      if (alone) continue;
      return Refusal(
          ExitCode::kUsage,
          absl::StrCat("ranks ", other->second, " and ", rank, " would share one GPU, ",
                       claims_[rank].gpu, " (", claims_[rank].uuid, ") of host ",
                       topology_.hosts[rank], "; start one rank per GPU, show each rank its own ",
                       "MIG instance with CUDA_VISIBLE_DEVICES, or share on purpose with --comm ",
                       "staged", transport == Transport::kNccl ? " (or NCCL 2.30 or later)" : ""));
    }
    return absl::OkStatus();
  }

  const EngineOptions& options_;
  const RankTopology& topology_;
  const std::vector<Claim> claims_;
};

}  // namespace

absl::StatusOr<RankDevice> ChooseDevice(const EngineOptions& options, GroupExchange& exchange,
                                        const std::function<DevicesFound()>& found,
                                        absl::Duration timeout) {
  const RankTopology& topology = exchange.topology();
  const absl::Status not_asked = absl::UnavailableError("--device cpu");
  RankDevice mine;
  const Claim claim = ClaimOf(
      options, topology,
      options.device == DeviceOption::kCpu ? DevicesFound{not_asked, not_asked} : found(), mine);
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                      exchange.AllGather(claim.Serialize(), timeout));
  std::vector<Claim> claims;
  for (const std::string& text : texts) {
    BH_ASSIGN_OR_RETURN(claims.emplace_back(), Claim::Parse(text));
  }
  const absl::Status made = Choice(options, topology, std::move(claims)).Make(mine);
  if (!made.ok()) return MarkAgreed(made);  // equal inputs: equal on every rank
  return mine;
}

}  // namespace bulkhead
