#include "memory/cuda_device.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/arithmetic.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"

namespace bulkhead {

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::New(CudaDriver& driver,
                                                            int64_t capacity_bytes) {
  const CudaProperties& properties = driver.properties();
  // Address space is free: reserve twice the memory, so that rounding never exhausts it.
  const int64_t bytes = RoundUp(2 * properties.total_bytes, properties.map_granule_bytes);
  BH_ASSIGN_OR_RETURN(std::byte* const base, driver.Reserve(bytes));
  return std::unique_ptr<CudaDevice>(new CudaDevice(driver, capacity_bytes, base, bytes));
}

CudaDevice::CudaDevice(CudaDriver& driver, int64_t capacity_bytes, std::byte* base,
                       int64_t range_bytes)
    : Device(capacity_bytes),
      driver_(driver),
      base_(base),
      range_bytes_(range_bytes),
      mapped_end_(base) {}

CudaDevice::~CudaDevice() { driver_.ReleaseRange(base_, range_bytes_); }

absl::Status CudaDevice::MapUpTo(std::byte* end) {
  const int64_t bytes = RoundUp(end - base_, driver_.properties().map_granule_bytes);
  const int64_t more = base_ + bytes - mapped_end_;
  if (more <= 0) return absl::OkStatus();
  absl::Status mapped = bytes <= range_bytes_
                            ? driver_.Map(mapped_end_, more)
                            : absl::ResourceExhaustedError("more than the device has");
  if (!mapped.ok()) {
    const absl::StatusOr<CudaMemory> memory = driver_.Memory();
    return absl::Status(
        mapped.code(),
        absl::StrCat(name(), ": ", mapped.message(), "; ", FormatBytes(more), " requested, ",
                     memory.ok() ? FormatBytes(memory->free_bytes) : "unknown", " free"));
  }
  mappings_.push_back({mapped_end_, more, true});
  mapped_end_ += more;
  return absl::OkStatus();
}

absl::StatusOr<Buffer> CudaDevice::Allocate(int64_t bytes) {
  BH_CHECK(bytes >= 0);
  if (bytes == 0) return Buffer();
  BH_RETURN_IF_ERROR(Charge(bytes));
  std::byte* begin = base_;
  if (!pieces_.empty()) {
    begin += RoundUp(pieces_.back().begin + pieces_.back().bytes - base_, kAlignBytes);
  }
  if (absl::Status mapped = MapUpTo(begin + bytes); !mapped.ok()) {
    Release(bytes);
    return mapped;
  }
  pieces_.push_back({begin, bytes, true});
  driver_.Fill(begin, std::byte{0}, bytes);
  return Buffer(this, begin, bytes);
}

// Mapped memory is already backed.
absl::Status CudaDevice::Commit(const Buffer&) { return absl::OkStatus(); }

absl::Status CudaDevice::Extend(Buffer& buffer, int64_t more_bytes) {
  BH_CHECK(more_bytes >= 0 && !pieces_.empty() && pieces_.back().begin == buffer.data());
  Piece& piece = pieces_.back();
  BH_RETURN_IF_ERROR(Charge(more_bytes));
  std::byte* const end = piece.begin + piece.bytes;
  if (absl::Status mapped = MapUpTo(end + more_bytes); !mapped.ok()) {
    Release(more_bytes);
    return mapped;
  }
  piece.bytes += more_bytes;
  driver_.Fill(end, std::byte{0}, more_bytes);
  SetBytes(buffer, piece.bytes);
  return absl::OkStatus();
}

void CudaDevice::Free(std::byte* data, int64_t bytes) {
  const auto piece = std::find_if(pieces_.begin(), pieces_.end(),
                                  [&](const Piece& p) { return p.begin == data && p.live; });
  BH_CHECK(piece != pieces_.end() && piece->bytes == bytes);
  piece->live = false;
  Release(bytes);
  while (!pieces_.empty() && !pieces_.back().live) pieces_.pop_back();
  std::byte* const end = pieces_.empty() ? base_ : pieces_.back().begin + pieces_.back().bytes;
  if (mappings_.empty() || mappings_.back().begin < end) return;
  const absl::Status idle = driver_.Synchronize();
  if (fault_.ok()) fault_ = idle;
  while (!mappings_.empty() && mappings_.back().begin >= end) {
    driver_.Unmap(mappings_.back().begin, mappings_.back().bytes);
    mapped_end_ = mappings_.back().begin;
    mappings_.pop_back();
  }
}

absl::StatusOr<HostBuffer> CudaDevice::AllocateHost(int64_t bytes) {
  BH_ASSIGN_OR_RETURN(std::byte* const memory, driver_.AllocateHost(bytes));
  return HostBuffer(memory, [this](std::byte* pinned) {
    const absl::Status idle = driver_.Synchronize();  // no copy may be in flight
    if (fault_.ok()) fault_ = idle;
    driver_.FreeHost(pinned);
  });
}

void CudaDevice::CopyFromHost(const void* host, std::byte* device, int64_t bytes) {
  driver_.CopyToDevice(host, device, bytes);
}

void CudaDevice::CopyToHost(const std::byte* device, void* host, int64_t bytes) {
  driver_.CopyToHost(device, host, bytes);
}

void CudaDevice::Copy(const std::byte* from, std::byte* to, int64_t bytes) {
  driver_.Copy(from, to, bytes);
}

void CudaDevice::CopyRows(const std::byte* from, int64_t from_stride_bytes, std::byte* to,
                          int64_t to_stride_bytes, int64_t bytes, int64_t rows) {
  constexpr int64_t kMaxStrideBytes = (int64_t{1} << 31) - 1;  // cudaDevAttrMaxPitch
  if (std::max(from_stride_bytes, to_stride_bytes) > kMaxStrideBytes) {
    return Device::CopyRows(from, from_stride_bytes, to, to_stride_bytes, bytes, rows);
  }
  driver_.CopyRows(from, from_stride_bytes, to, to_stride_bytes, bytes, rows);
}

absl::Status CudaDevice::Synchronize() {
  const absl::Status status = driver_.Synchronize();
  return fault_.ok() ? status : fault_;
}

}  // namespace bulkhead
