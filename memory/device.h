// Device: one in-order stream and its memory. Kernels do not report errors; Synchronize does.
// Allocation happens at start only, through MemoryLedger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bulkhead {

class CudaDriver;
class Device;

// Owns device memory; returned to the device on destruction. Zeroed when allocated; at least
// 64-byte aligned, huge pages from 2 MiB.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, std::byte* data, int64_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer();
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  friend class Device;
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

using HostBuffer = std::unique_ptr<std::byte[], std::function<void(std::byte*)>>;

class Device {
 public:
  // `capacity_bytes` 0: no cap.
  explicit Device(int64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
  virtual ~Device();
  virtual const char* name() const = 0;
  // Whether the CPU can access buffers directly.
  virtual bool host_memory() const { return false; }
  // The CUDA driver, for events and graphs; null for other devices.
  virtual CudaDriver* cuda_driver() { return nullptr; }
  // RESOURCE_EXHAUSTED when the capacity or the machine is exhausted.
  virtual absl::StatusOr<Buffer> Allocate(int64_t bytes) = 0;
  // Backs the pages of a buffer now, so that no other process can take them later.
  // RESOURCE_EXHAUSTED when the machine is out of memory.
  virtual absl::Status Commit(const Buffer& buffer) = 0;
  // Extends the last allocated buffer in place by `more_bytes` zeroes, backed at once.
  // RESOURCE_EXHAUSTED as above, with the buffer unchanged; UNIMPLEMENTED if memory cannot grow in
  // place.
  virtual absl::Status Extend(Buffer& buffer, int64_t more_bytes);
  // Zeroed pinned host memory; freed before the device is destroyed. RESOURCE_EXHAUSTED when the
  // host is out of memory.
  virtual absl::StatusOr<HostBuffer> AllocateHost(int64_t bytes);
  virtual void CopyFromHost(const void* host, std::byte* device, int64_t bytes) = 0;  // enqueued
  virtual void CopyToHost(const std::byte* device, void* host, int64_t bytes) = 0;    // enqueued
  // Within the device's memory, without overlap; enqueued.
  virtual void Copy(const std::byte* from, std::byte* to, int64_t bytes) = 0;
  // `rows` pieces of `bytes`, with a stride on each side: one copy where the device supports it.
  virtual void CopyRows(const std::byte* from, int64_t from_stride_bytes, std::byte* to,
                        int64_t to_stride_bytes, int64_t bytes, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) {
      Copy(from + row * from_stride_bytes, to + row * to_stride_bytes, bytes);
    }
  }
  // INTERNAL if any work enqueued since the last call failed.
  virtual absl::Status Synchronize() = 0;
  // Memory in use: allocated and charged.
  int64_t allocated_bytes() const { return allocated_bytes_; }
  // Charges externally mapped memory to the capacity; RESOURCE_EXHAUSTED beyond it.
  absl::Status Charge(int64_t bytes);
  void Release(int64_t bytes) { allocated_bytes_ -= bytes; }

 protected:
  friend class Buffer;
  virtual void Free(std::byte* data, int64_t bytes) = 0;
  static void SetBytes(Buffer& buffer, int64_t bytes) { buffer.bytes_ = bytes; }

 private:
  const int64_t capacity_bytes_;
  int64_t allocated_bytes_ = 0;
};

// Host memory as a device. `capacity_bytes` 0: no cap; otherwise allocations beyond it are refused,
// so that a CPU rank can emulate a small GPU. Not thread-safe: used by one rank's main thread.
std::unique_ptr<Device> NewHostDevice(int64_t capacity_bytes);

}  // namespace bulkhead
