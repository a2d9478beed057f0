// The composition root: the only place that names concrete classes. Options in, interfaces out.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "absl/status/statusor.h"
#include "comm/group.h"
#include "kernels/backend.h"
#include "launcher/device_choice.h"
#include "launcher/flags/options.h"
#include "launcher/rank_cores.h"
#include "memory/cuda_driver.h"
#include "memory/device.h"
#include "memory/ledger.h"
#include "runtime/model/footprint.h"

namespace bulkhead {

// This process's group: a group of one unless launched as part of a larger one. Errors carry exit
// code 5.
absl::StatusOr<std::unique_ptr<Group>> JoinGroup(const EngineOptions& options);

// Refuses a --tensor-parallel-size other than the group's size (exit code 5).
absl::Status CheckGroupSize(const EngineOptions& options, const RankTopology& topology);

// CUDA, NCCL and cuBLASLt as visible to this process. Creates no context.
DevicesFound FindDevices();
// The CPU, with the budget's cap, if given.
std::unique_ptr<Device> MakeDevice(const DeviceBudget& budget);
// The driver's GPU, with the budget's cap, if given. `driver` outlives the device.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceBudget& budget, CudaDriver& driver);
// The CPU backend's name.
const char* IsaNameOf(CpuIsa isa);
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const EngineOptions& options,
                                                     const ThreadConfig& threads,
                                                     const ModelLimits& formats, Device& device);

// Whether this machine's CPU computes with such activations and attention, as MakeBackend asks.
absl::Status CheckActivation(const EngineOptions& options, ActivationDType activation,
                             AttentionDType attention);
// Logs a faster option of this CPU that changes answers' last bits and so is never the default.
void LogActivationAdvice(const EngineOptions& options, const ModelLimits& formats);

// Used if no limit is known.
inline constexpr int64_t kAnySharedBytes = std::numeric_limits<int64_t>::max();
// A rank's backend sizes on a GPU, without a GPU: for planning. INVALID_ARGUMENT (exit code 2) for
// formats that the kernels do not support on a GPU with `max_shared_bytes` per block.
// `gemm_library`: whether cuBLASLt is used.
absl::StatusOr<std::unique_ptr<BackendSizes>> MakeGpuSizes(
    const ModelLimits& formats, const ModelConfig& config, bool gemm_library,
    int64_t max_shared_bytes = kAnySharedBytes);
// The backend, with the same errors; exit code 5 for a GEMM library that does not start.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const ModelLimits& formats,
                                                     const ModelConfig& config, Device& device,
                                                     CudaDriver& driver, bool gemm_library);

// Collective: the communicator of the chosen transport, from the ledger of the rank's device.
// `driver` is null on a CPU.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectRanks(Group& group, const CommLimits& limits,
                                                           Device& device, CudaDriver* driver,
                                                           MemoryLedger& ledger,
                                                           absl::Duration timeout);

}  // namespace bulkhead
