// Each rank's memory budget: from the command line (--device-memory, --reserve), or measured on
// this host.
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

// The values in `sizes` for ranks 0 to size - 1. INVALID_ARGUMENT with exit code 2, naming `flag`,
// if a list omits a rank or has one that does not exist.
absl::StatusOr<std::vector<int64_t>> SizesOfRanks(const RankSizes& sizes, int size,
                                                  absl::string_view flag);

// For one rank of a group of `size` on CPUs. `share` is its part of its measured host; absent with
// --device-memory. `num_threads` read its weights.
absl::StatusOr<DeviceBudget> BudgetOf(const EngineOptions& options, int rank, int size,
                                      const std::optional<HostMemory>& share, int num_threads);

// Applies --device-memory and --reserve to budget.rank, if given.
absl::Status ApplyMemoryFlags(const EngineOptions& options, int size, DeviceBudget& budget);

// A rank's GPU after all ranks have opened theirs: other processes' contexts count as used.
struct GpuFound {
  std::string name;
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  int sharers = 1;  // ranks on this GPU; each gets its share of everything
};

// Before any allocation. Library memory is an estimate, noted as `driver_bytes`; once it is
// allocated, a plan with measured values replaces this one.
absl::StatusOr<DeviceBudget> GpuBudgetOf(const EngineOptions& options, int rank, int size,
                                         const GpuFound& found, Transport transport,
                                         int num_threads);

// NCCL's addition to a rank's driver_bytes when a group of one becomes larger; 0 for a rank that
// will not use it, or whose driver memory is not counted.
int64_t NcclGuessBytes(const EngineOptions& options, const DeviceBudget& budget);

// Library memory on an idle GPU, including the CUDA context: published figures, not our own.
struct DriverGuess {
  int64_t least_bytes = 0;
  int64_t most_bytes = 0;
};
DriverGuess GuessDriver(Transport transport, int size);
// The source of the estimate, in one line.
inline constexpr char kDriverGuessSource[] =
    "a CUDA context takes some 0.4 to 0.6 GiB; vLLM measured 1.79 GiB of libraries at 1 rank and "
    "3.58 GiB at 2 (H100, vllm-project/vllm pull request 10511), and NCCL takes more for more GPUs "
    "of a host (NVIDIA/nccl issue 986)";

// A GPU's default reserve.
int64_t GpuReserveBytes(int64_t total_bytes);

}  // namespace bulkhead
