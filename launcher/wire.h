// The composition root: the only place that names concrete classes. Options in, interfaces out.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "comm/group.h"
#include "kernels/backend.h"
#include "launcher/flags/options.h"
#include "launcher/device_choice.h"
#include "memory/cuda_driver.h"
#include "memory/device.h"
#include "memory/ledger.h"
#include "runtime/model/footprint.h"

namespace bulkhead {

// This process's group: of one when nothing launched us as a part of more, else the launcher's.
// Failures carry exit code 5.
absl::StatusOr<std::unique_ptr<Group>> JoinGroup(const EngineOptions& options);

// Refuses a --tensor-parallel-size other than the group's size (exit code 5).
absl::Status CheckGroupSize(const EngineOptions& options, const RankTopology& topology);

// How a rank computes: agreed on by the ranks of a host, since they share its cores.
struct ThreadConfig {
  int num_threads = 1;
  int cores_allowed = 1;  // of this rank
  bool may_spin = true;   // false where the host's ranks x threads exceed the cores they may use
};
// Collective over the group. `threads` absent: this rank's fair share of the cores it may use.
absl::StatusOr<ThreadConfig> ChooseThreads(std::optional<int> threads, GroupExchange& exchange,
                                           absl::Duration timeout);

// What CUDA, NCCL and cuBLASLt show this process. Makes no context.
DevicesFound FindDevices();
// Of the CPU, with the budget's cap, where one was given.
std::unique_ptr<Device> MakeDevice(const DeviceBudget& budget);
// Of the driver's GPU, likewise. `driver` outlives the device.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceBudget& budget, CudaDriver& driver);
// As the CPU backend calls it.
const char* IsaNameOf(CpuIsa isa);
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const EngineOptions& options,
                                                     const ThreadConfig& threads,
                                                     ActivationDType activation, Device& device);

// What a rank's backend takes of a GPU, with no GPU: to plan for one. INVALID_ARGUMENT (exit code
// 2) for formats that the GPU's kernels do not know. `gemm_library`: whether cuBLASLt multiplies.
absl::StatusOr<std::unique_ptr<BackendSizes>> MakeGpuSizes(const ModelLimits& formats, int head_dim,
                                                           bool gemm_library);
// The backend, with the same errors; exit code 5 for a library of products that does not start.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const ModelLimits& formats, int head_dim,
                                                     Device& device, CudaDriver& driver,
                                                     bool gemm_library);

// Collective: the communicator of the chosen way, from the ledger of the rank's device. `driver` is
// null on a CPU.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectRanks(Group& group, const CommLimits& limits,
                                                           Device& device, CudaDriver* driver,
                                                           MemoryLedger& ledger,
                                                           absl::Duration timeout);

}  // namespace bulkhead
