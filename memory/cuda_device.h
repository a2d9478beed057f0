// CudaDevice: a GPU's memory and stream as a Device. One reserved address range; each allocation
// maps memory after the previous ones, so the last allocation (the KV pool) can use all remaining
// memory, and addresses never change.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "memory/cuda_driver.h"
#include "memory/device.h"

namespace bulkhead {

class CudaDevice final : public Device {
 public:
  static constexpr int64_t kAlignBytes = 256;

  // `driver` outlives the device. `capacity_bytes` 0: the GPU's memory; otherwise allocations
  // beyond it are refused, as on a smaller GPU.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> New(CudaDriver& driver,
                                                         int64_t capacity_bytes);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  const char* name() const override { return driver_.properties().name.c_str(); }
  CudaDriver* cuda_driver() override { return &driver_; }
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override;
  absl::Status Commit(const Buffer& buffer) override;
  absl::Status Extend(Buffer& buffer, int64_t more_bytes) override;
  absl::StatusOr<HostBuffer> AllocateHost(int64_t bytes) override;
  void CopyFromHost(const void* host, std::byte* device, int64_t bytes) override;
  void CopyToHost(const std::byte* device, void* host, int64_t bytes) override;
  void Copy(const std::byte* from, std::byte* to, int64_t bytes) override;
  void CopyRows(const std::byte* from, int64_t from_stride_bytes, std::byte* to,
                int64_t to_stride_bytes, int64_t bytes, int64_t rows) override;
  absl::Status Synchronize() override;

  // Mapped memory in whole granules: at most one granule, plus 256 bytes per buffer, above
  // allocated_bytes.
  int64_t mapped_bytes() const { return mapped_end_ - base_; }

 protected:
  void Free(std::byte* data, int64_t bytes) override;

 private:
  struct Piece {
    std::byte* begin;
    int64_t bytes;
    bool live;
  };
  CudaDevice(CudaDriver& driver, int64_t capacity_bytes, std::byte* base, int64_t range_bytes);
  absl::Status MapUpTo(std::byte* end);

  CudaDriver& driver_;
  std::byte* const base_;
  const int64_t range_bytes_;
  std::byte* mapped_end_;
  std::vector<Piece> pieces_;    // by address; the last one is live
  std::vector<Piece> mappings_;  // one per Map call, by address
  absl::Status fault_;           // error while freeing memory, reported by Synchronize
};

}  // namespace bulkhead
