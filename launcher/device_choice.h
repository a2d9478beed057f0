// Selects each rank's device and the transport between ranks: one decision for the whole group,
// from the command line and what every rank finds on its machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "comm/exchange.h"
#include "launcher/flags/options.h"
#include "memory/cuda_runtime_driver.h"

namespace bulkhead {

// What a rank finds; a status gives the reason why something is unavailable.
struct DevicesFound {
  absl::StatusOr<std::vector<CudaDeviceIdentity>> cuda;
  absl::StatusOr<int> nccl_version;  // this and the following are queried only with CUDA
  absl::StatusOr<std::string> gemm_library = absl::UnavailableError("not checked");  // its name
};

struct RankDevice {
  bool cuda = false;            // false: CPU
  int ordinal = 0;              // CUDA ordinal on this host
  CudaDeviceIdentity identity;  // the GPU's
  int sharers = 1;              // ranks on this GPU, including this one
  bool first_sharer = true;     // whether this rank locks the GPU
  Transport transport = Transport::kShared;
  bool gemm_library = false;  // used for large products: only if every rank has it
  std::string products;       // on a GPU: which library, and why
  std::string rounded_sums;   // which sums, if --all-reduce-dtype is not f32
  std::string text;           // the decision and the reason, equal on all ranks except for the GPU
  // Severity of `text`. kInfo: a build with CUDA, or a host with NVIDIA's driver, found no GPU.
  LogLevel level = LogLevel::kVerbose;
};

// Collective. A rank takes the GPU of its local rank; `found` is called at most once. Errors,
// agreed: exit code 2 for a flag that a machine cannot satisfy, naming the rank and the cause, and
// for ranks that would share a GPU without --comm staged. `options` are equal on all ranks.
absl::StatusOr<RankDevice> ChooseDevice(const EngineOptions& options, GroupExchange& exchange,
                                        const std::function<DevicesFound()>& found,
                                        absl::Duration timeout);

}  // namespace bulkhead
