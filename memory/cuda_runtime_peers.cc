#include <cuda_runtime_api.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "memory/peer_driver.h"

namespace bulkhead {
namespace {

absl::Status Failure(cudaError_t error, const char* call) {
  const absl::StatusCode code = error == cudaErrorMemoryAllocation
                                    ? absl::StatusCode::kResourceExhausted
                                    : absl::StatusCode::kUnavailable;
  return absl::Status(code, absl::StrCat(call, ": ", cudaGetErrorString(error)));
}

// Errors of Free and Close are ignored: the process ends, or continues without peer sums.
class CudaPeerDriver final : public PeerDriver {
 public:
  absl::StatusOr<std::byte*> AllocateShared(int64_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
    if (error != cudaSuccess) return Failure(error, "cudaMalloc");
    return static_cast<std::byte*>(memory);
  }
  // Freed at the end of the process: others may not have closed it yet, and CUDA does not define
  // freeing it before.
  void FreeShared(std::byte*) override {}

  absl::StatusOr<std::string> HandleOf(std::byte* memory) override {
    cudaIpcMemHandle_t handle = {};
    const cudaError_t error = cudaIpcGetMemHandle(&handle, memory);
    if (error != cudaSuccess) return Failure(error, "cudaIpcGetMemHandle");
    return std::string(handle.reserved, sizeof(handle.reserved));
  }
  absl::StatusOr<std::byte*> OpenShared(absl::string_view text) override {
    cudaIpcMemHandle_t handle = {};
    BH_CHECK(text.size() == sizeof(handle.reserved));
    std::memcpy(handle.reserved, text.data(), text.size());
    void* memory = nullptr;
    const cudaError_t error = cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess);
    if (error == cudaSuccess) return static_cast<std::byte*>(memory);
    cudaGetLastError();  // do not leave the error for the next call
    return Failure(error, "cudaIpcOpenMemHandle");
  }
  void CloseShared(std::byte* memory) override { cudaIpcCloseMemHandle(memory); }
};

}  // namespace

std::unique_ptr<PeerDriver> NewCudaPeerDriver() { return std::make_unique<CudaPeerDriver>(); }

}  // namespace bulkhead
