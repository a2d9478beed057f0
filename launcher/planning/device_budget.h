// What each rank's device offers: what the command line says (--device-memory, --reserve), or what
// was measured on this host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "launcher/flags/options.h"
#include "memory/capacity.h"
#include "memory/host_memory.h"

namespace bulkhead {

// The values that `sizes` gives ranks 0 to size - 1. INVALID_ARGUMENT with exit code 2, naming
// `flag`, when a list leaves out a rank or names one that is not there.
absl::StatusOr<std::vector<int64_t>> SizesOfRanks(const RankSizes& sizes, int size,
                                                  absl::string_view flag);

// Of one rank of a group of `size` that computes on CPUs. `share` is what it may use of its host
// where that was measured; absent under --device-memory. `num_threads` read its weights.
absl::StatusOr<DeviceBudget> BudgetOf(const EngineOptions& options, int rank, int size,
                                      const std::optional<HostMemory>& share, int num_threads);

// What --device-memory and --reserve say of budget.rank, where they say anything.
absl::Status ApplyMemoryFlags(const EngineOptions& options, int size, DeviceBudget& budget);

// What a rank finds on its GPU, once the group's ranks have opened theirs: contexts are others'.
struct GpuFound {
  std::string name;
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  int sharers = 1;  // ranks on this GPU; each gets its share of everything
};

// Before anything is taken. What libraries will take is a guess, and `driver_bytes` says so; once
// they have taken it, a plan with what was measured takes this one's place.
absl::StatusOr<DeviceBudget> GpuBudgetOf(const EngineOptions& options, int rank, int size,
                                         const GpuFound& found, Transport transport);

// What NCCL adds to a rank's driver_bytes where a group of one becomes one of several; 0 for a rank
// that will not use it, or whose driver's part is not counted.
int64_t NcclGuessBytes(const EngineOptions& options, const DeviceBudget& budget);

// What libraries take of a GPU on which nothing runs yet, the CUDA context with them: public
// figures, not ours.
struct DriverGuess {
  int64_t least_bytes = 0;
  int64_t most_bytes = 0;
};
DriverGuess GuessDriver(Transport transport, int size);
// Where the guess comes from, in one line.
inline constexpr char kDriverGuessSource[] =
    "a CUDA context takes some 0.4 to 0.6 GiB; vLLM measured 1.79 GiB of libraries at 1 rank and "
    "3.58 GiB at 2 (H100, vllm-project/vllm pull request 10511), and NCCL takes more for more GPUs "
    "of a host (NVIDIA/nccl issue 986)";

// What a GPU keeps for others by default.
int64_t GpuReserveBytes(int64_t total_bytes);

}  // namespace bulkhead
