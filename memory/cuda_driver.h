// CudaDriver: what Bulkhead asks of a CUDA device: one context with one ordered queue of work, as
// Device promises it. Nothing above it includes a CUDA header; two classes implement it, the CUDA
// runtime and the emulator of the tests.
//
// Ops that return nothing only enqueue; what goes wrong in them, a fault inside a kernel
// included, surfaces at the next Synchronize, HostWait or EndCapture and at all after it: the
// device is lost. One thread uses a driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "memory/cuda_kernel.h"

namespace bulkhead {

struct CudaProperties {
  std::string name;          // "NVIDIA H200"
  std::string uuid;          // "GPU-..." or "MIG-..."
  int capability_major = 0;  // 9 of sm_90
  int capability_minor = 0;
  int num_sms = 0;
  int64_t total_bytes = 0;
  int64_t max_shared_bytes = 0;   // that a block may opt in to
  int64_t map_granule_bytes = 0;  // Map and Reserve take multiples of it
};

struct CudaMemory {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

enum class CudaEvent : int {};
enum class CudaGraph : int {};

class CudaDriver {
 public:
  virtual ~CudaDriver() = default;
  virtual const CudaProperties& properties() const = 0;
  // As the device says it now, whoever uses it. Any thread may ask.
  virtual absl::StatusOr<CudaMemory> Memory() = 0;

  // The CUDA stream behind the queue, for libraries that enqueue by themselves; null where there is
  // none.
  virtual void* native_stream() { return nullptr; }

  // ---- virtual ranges
  // Addresses without memory, `bytes` of them, aligned to a granule.
  virtual absl::StatusOr<std::byte*> Reserve(int64_t bytes) = 0;
  // Puts memory of undefined content behind [at, at + bytes) of a reserved range.
  // RESOURCE_EXHAUSTED when the device has no more.
  virtual absl::Status Map(std::byte* at, int64_t bytes) = 0;
  // Gives back what one call of Map took; nothing enqueued may still use it.
  virtual void Unmap(std::byte* at, int64_t bytes) = 0;
  // Gives back a range in which nothing is mapped any more.
  virtual void ReleaseRange(std::byte* at, int64_t bytes) = 0;

  // ---- pinned host memory, zeroed
  virtual absl::StatusOr<std::byte*> AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(std::byte* memory) = 0;

  // Brings the kernel's code onto the device, which takes memory there, if it is not there yet. A
  // launch would do so too, at a time of its own.
  virtual void Load(const CudaKernel& kernel) = 0;

  // ---- the queue. Parameters are copied at the call; host memory of a copy is read or written
  // when the work runs, and stays as it is until then. Inside a capture it must be pinned.
  virtual void Launch(const CudaKernel& kernel, const LaunchShape& shape,
                      const void* parameters) = 0;
  virtual void CopyToDevice(const void* host, std::byte* device, int64_t bytes) = 0;
  virtual void CopyToHost(const std::byte* device, void* host, int64_t bytes) = 0;
  virtual void Copy(const std::byte* from, std::byte* to, int64_t bytes) = 0;  // apart
  // `rows` pieces of `bytes`, a stride apart on either side; on the device, apart.
  virtual void CopyRows(const std::byte* from, int64_t from_stride_bytes, std::byte* to,
                        int64_t to_stride_bytes, int64_t bytes, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) {
      Copy(from + row * from_stride_bytes, to + row * to_stride_bytes, bytes);
    }
  }
  virtual void Fill(std::byte* device, std::byte value, int64_t bytes) = 0;
  // Waits for everything enqueued.
  virtual absl::Status Synchronize() = 0;

  // What a library said that enqueues by itself: surfaces as a fault inside a kernel does.
  virtual void ReportFault(absl::Status fault) = 0;

  // ---- events: places in the queue
  virtual CudaEvent NewEvent() = 0;
  virtual void Record(CudaEvent event) = 0;
  // Whether the queue has come past the last Record; true before the first.
  virtual bool Query(CudaEvent event) = 0;
  // Waits on the host until it has.
  virtual absl::Status HostWait(CudaEvent event) = 0;

  // ---- graphs: between the two calls work is recorded instead of run. Parameters, addresses and
  // sizes are kept as they were; contents are read when the graph runs. Synchronize, events and
  // captures inside a capture are bugs.
  virtual void BeginCapture() = 0;
  virtual absl::StatusOr<CudaGraph> EndCapture() = 0;
  virtual void LaunchGraph(CudaGraph graph) = 0;
  // Gives back what the graph holds; nothing enqueued may still use it. The driver does so with
  // those that are left when it dies.
  virtual void FreeGraph(CudaGraph graph) = 0;
};

template <typename Parameters>
void Enqueue(CudaDriver& driver, const CudaKernelOf<Parameters>& kernel, const LaunchShape& shape,
             const Parameters& parameters) {
  if (!shape.empty()) driver.Launch(kernel.kernel, shape, &parameters);
}

// The CUDA device `ordinal` of this machine through the CUDA runtime. UNIMPLEMENTED in a build
// without CUDA, UNAVAILABLE with the cause where there is no driver or no such device.
absl::StatusOr<std::unique_ptr<CudaDriver>> NewCudaRuntimeDriver(int ordinal);

}  // namespace bulkhead
