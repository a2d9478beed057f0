// Which device each rank of a group computes on, and how tensors travel between them: one answer
// for the whole group, from what the command line wants and every rank finds on its machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/exchange.h"
#include "launcher/flags/options.h"
#include "memory/cuda_runtime_driver.h"

namespace bulkhead {

// What a rank finds; a status says why there is none.
struct DevicesFound {
  absl::StatusOr<std::vector<CudaDeviceIdentity>> cuda;
  absl::StatusOr<int> nccl_version;  // asked for only where CUDA is, and what is below
  absl::StatusOr<std::string> gemm_library = absl::UnavailableError("not looked for");  // its name
};

struct RankDevice {
  bool cuda = false;            // else the CPU
  int ordinal = 0;              // of the GPU, as CUDA numbers them on this host
  CudaDeviceIdentity identity;  // of the GPU
  int sharers = 1;              // ranks on this GPU, with this one
  bool first_sharer = true;     // the one of them that locks it
  Transport transport = Transport::kShared;
  bool gemm_library = false;  // whether it multiplies many tokens: where every rank has one
  std::string products;       // what does, on a GPU, and why
  std::string text;           // what was chosen and why, equal on all ranks but for the GPU
};

// Collective. A rank takes the GPU of its local rank; `found` is asked for at most once. Errors,
// agreed on: exit code 2 for a flag that a machine cannot serve, naming the rank and the cause, and
// for ranks that would share a GPU without --comm staged; exit code 5 for ranks that want different
// things.
absl::StatusOr<RankDevice> ChooseDevice(const EngineOptions& options, GroupExchange& exchange,
                                        const std::function<DevicesFound()>& found,
                                        absl::Duration timeout);

}  // namespace bulkhead
