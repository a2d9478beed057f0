#include "launcher/planning/device_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "shard/weight_loader.h"

namespace bulkhead {
namespace {

// Reserve on a probed host, as a fraction of free memory: for the page cache, other programs, and
// our own heap.
constexpr int64_t kReserveDivisor = 10;
constexpr int64_t kMinGpuReserveBytes = int64_t{256} << 20;
constexpr int64_t kGpuReserveDivisor = 100;
constexpr int64_t kMinContextBytes = int64_t{400} << 20;
// Estimates before measurement: modules loaded at the first launch, and NCCL's channels.
constexpr int64_t kModulesGuessBytes = int64_t{128} << 20;
constexpr int64_t kNcclGuessBytes = int64_t{768} << 20;

}  // namespace

absl::StatusOr<std::vector<int64_t>> SizesOfRanks(const RankSizes& sizes, int size,
                                                  absl::string_view flag) {
  if (sizes.of_rank.empty()) return std::vector<int64_t>(size, sizes.of_all.value_or(0));
  std::vector<int64_t> values;
  for (const auto& [rank, bytes] : sizes.of_rank) {
    if (rank != static_cast<int>(values.size()) || rank >= size) break;
    values.push_back(bytes);
  }
  if (static_cast<int>(values.size()) == size && values.size() == sizes.of_rank.size()) {
    return values;
  }
  return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                          flag, ": the list names ", sizes.of_rank.size(), " ranks, up to ",
                          sizes.of_rank.rbegin()->first, "; the group has ranks 0 to ", size - 1,
                          ", and each needs a value, or give one value for all")),
                      ExitCode::kUsage);
}

namespace {

int64_t ReaderBytes(int num_threads) {
  return std::min(num_threads, Checkpoint::kMaxThreads) * Checkpoint::kStagingBytes;
}

}  // namespace

absl::Status ApplyMemoryFlags(const EngineOptions& options, int size, DeviceBudget& budget) {
  if (options.device_memory.has_value()) {
    BH_ASSIGN_OR_RETURN(const std::vector<int64_t> caps,
                        SizesOfRanks(*options.device_memory, size, "--device-memory"));
    budget.total_bytes = caps[budget.rank];
  }
  if (options.reserve.has_value()) {
    BH_ASSIGN_OR_RETURN(const std::vector<int64_t> reserves,
                        SizesOfRanks(*options.reserve, size, "--reserve"));
    budget.reserve_bytes = reserves[budget.rank];
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceBudget> BudgetOf(const EngineOptions& options, int rank, int size,
                                      const std::optional<HostMemory>& share, int num_threads) {
  DeviceBudget budget;
  budget.rank = rank;
  budget.device = "cpu";
  budget.transient_bytes = ReaderBytes(num_threads);
  if (share.has_value()) {
    budget.probed = true;
    budget.total_bytes = share->total_bytes;
    budget.others_bytes = share->total_bytes - share->available_bytes;
    budget.reserve_bytes = std::max(budget.free_bytes() / kReserveDivisor, budget.transient_bytes);
  }
  BH_RETURN_IF_ERROR(ApplyMemoryFlags(options, size, budget));
  return budget;
}

int64_t NcclGuessBytes(const EngineOptions& options, const DeviceBudget& budget) {
  return budget.driver_bytes == 0 || options.comm == CommOption::kStaged ? 0 : kNcclGuessBytes;
}

DriverGuess GuessDriver(Transport transport, int size) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  DriverGuess guess{kMinContextBytes + kModulesGuessBytes, 1833 * kMiB};
  if (transport != Transport::kNccl) return guess;
  // Twice the library memory of one rank for two ranks; a quarter more from three on, for NVLS
  // buffers.
  guess.least_bytes += 256 * kMiB;
  guess.most_bytes += size > 2 ? 2291 * kMiB : 1833 * kMiB;
  return guess;
}

int64_t GpuReserveBytes(int64_t total_bytes) {
  return std::max(kMinGpuReserveBytes, total_bytes / kGpuReserveDivisor);
}

absl::StatusOr<DeviceBudget> GpuBudgetOf(const EngineOptions& options, int rank, int size,
                                         const GpuFound& found, Transport transport,
                                         int num_threads) {
  DeviceBudget budget;
  budget.rank = rank;
  budget.transient_bytes = ReaderBytes(num_threads);
  budget.device = absl::StrReplaceAll(found.name, {{" ", "-"}});
  if (!options.device_memory.has_value()) {
    budget.probed = true;
    budget.total_bytes = found.total_bytes / found.sharers;
    budget.others_bytes = budget.total_bytes - found.free_bytes / found.sharers;
    budget.driver_bytes =
        kModulesGuessBytes + (transport == Transport::kNccl ? kNcclGuessBytes : 0);
    budget.reserve_bytes = GpuReserveBytes(budget.total_bytes);
  }
  BH_RETURN_IF_ERROR(ApplyMemoryFlags(options, size, budget));
  return budget;
}

}  // namespace bulkhead
