// CudaDriver: the CUDA functions that Bulkhead uses: one context with one in-order stream, as
// Device requires. Nothing above it includes a CUDA header; implemented by the CUDA runtime and by
// the emulator in the tests.
//
// Ops that return void only enqueue. Their errors, including faults inside a kernel, surface at the
// next Synchronize, HostWait or EndCapture and at every later one: the device is lost. One thread
// uses a driver.
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
  int capability_major = 0;  // 9 for sm_90
  int capability_minor = 0;
  int capability() const { return 10 * capability_major + capability_minor; }
  int num_sms = 0;
  int64_t total_bytes = 0;
  int64_t max_shared_bytes = 0;   // maximum opt-in per block
  int64_t map_granule_bytes = 0;  // granularity of Map and Reserve
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
  // Current values for the device, over all processes. Any thread.
  virtual absl::StatusOr<CudaMemory> Memory() = 0;

  // The CUDA stream, for libraries that enqueue themselves; null if there is none.
  virtual void* native_stream() { return nullptr; }

  // ---- virtual address ranges
  // Reserves `bytes` of addresses without memory, aligned to a granule.
  virtual absl::StatusOr<std::byte*> Reserve(int64_t bytes) = 0;
  // Backs [at, at + bytes) of a reserved range with uninitialised memory. RESOURCE_EXHAUSTED when
  // the device is out of memory.
  virtual absl::Status Map(std::byte* at, int64_t bytes) = 0;
  // Frees the memory of one Map call; no enqueued work may still use it.
  virtual void Unmap(std::byte* at, int64_t bytes) = 0;
  // Frees a reserved range with nothing mapped.
  virtual void ReleaseRange(std::byte* at, int64_t bytes) = 0;

  // ---- pinned host memory, zeroed
  virtual absl::StatusOr<std::byte*> AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(std::byte* memory) = 0;

  // Loads the kernel's code onto the device, which allocates device memory, unless already loaded.
  // Otherwise the first launch would load it.
  virtual void Load(const CudaKernel& kernel) = 0;

  // ---- stream. Parameters are copied by the call; the host memory of a copy is accessed when the
  // copy executes and must not change until then. During capture it must be pinned.
  virtual void Launch(const CudaKernel& kernel, const LaunchShape& shape,
                      const void* parameters) = 0;
  virtual void CopyToDevice(const void* host, std::byte* device, int64_t bytes) = 0;
  virtual void CopyToHost(const std::byte* device, void* host, int64_t bytes) = 0;
  virtual void Copy(const std::byte* from, std::byte* to, int64_t bytes) = 0;  // no overlap
  // `rows` pieces of `bytes`, with a stride on each side; on the device, no overlap.
  virtual void CopyRows(const std::byte* from, int64_t from_stride_bytes, std::byte* to,
                        int64_t to_stride_bytes, int64_t bytes, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) {
      Copy(from + row * from_stride_bytes, to + row * to_stride_bytes, bytes);
    }
  }
  virtual void Fill(std::byte* device, std::byte value, int64_t bytes) = 0;
  // Waits for all enqueued work.
  virtual absl::Status Synchronize() = 0;

  // Reports an error of a library that enqueues itself; surfaces like a kernel fault.
  virtual void ReportFault(absl::Status fault) = 0;

  // ---- events: positions in the stream
  virtual CudaEvent NewEvent() = 0;
  virtual void Record(CudaEvent event) = 0;
  // True if the stream has passed the last Record; true before the first.
  virtual bool Query(CudaEvent event) = 0;
  // Blocks the host until then.
  virtual absl::Status HostWait(CudaEvent event) = 0;

  // ---- graphs: between the two calls work is captured instead of run. Parameters, addresses and
  // sizes are captured; memory contents are read at replay. Synchronize, events and nested captures
  // are bugs during capture.
  virtual void BeginCapture() = 0;
  virtual absl::StatusOr<CudaGraph> EndCapture() = 0;
  virtual void LaunchGraph(CudaGraph graph) = 0;
  // Frees the graph; no enqueued work may still use it. The destructor frees the remaining ones.
  virtual void FreeGraph(CudaGraph graph) = 0;
};

template <typename Parameters>
void Enqueue(CudaDriver& driver, const CudaKernelOf<Parameters>& kernel, const LaunchShape& shape,
             const Parameters& parameters) {
  if (!shape.empty()) driver.Launch(kernel.kernel, shape, &parameters);
}

// The CUDA device `ordinal` of this machine, by the CUDA runtime. UNIMPLEMENTED in a build without
// CUDA, UNAVAILABLE with the cause if there is no driver or no such device.
absl::StatusOr<std::unique_ptr<CudaDriver>> NewCudaRuntimeDriver(int ordinal);

}  // namespace bulkhead
