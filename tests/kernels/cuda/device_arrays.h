// Arrays in device memory for tests. Each ends where mapped memory ends, so that a kernel that runs
// over it faults; what nobody wrote is NaN.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

class DeviceArrays {
 public:
  explicit DeviceArrays(CudaDriver& driver) : driver_(driver) {}
  DeviceArrays(const DeviceArrays&) = delete;
  DeviceArrays& operator=(const DeviceArrays&) = delete;
  ~DeviceArrays() {
    for (const Range& range : ranges_) {
      driver_.Unmap(range.base, range.mapped_bytes);
      driver_.ReleaseRange(range.base, range.mapped_bytes + Granule());
    }
  }

  // `count` elements, every byte 0xFF.
  template <typename T>
  T* New(int64_t count) {
    const int64_t bytes = (count * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
    const int64_t mapped = std::max((bytes + Granule() - 1) / Granule(), int64_t{1}) * Granule();
    absl::StatusOr<std::byte*> base = driver_.Reserve(mapped + Granule());
    BH_CHECK(base.ok());
    BH_CHECK(driver_.Map(*base, mapped).ok());
    ranges_.push_back({*base, mapped});
    driver_.Fill(*base, std::byte{0xFF}, mapped);
    return reinterpret_cast<T*>(*base + mapped - bytes);
  }

  template <typename T>
  T* Put(const std::vector<T>& values) {
    T* const array = New<T>(static_cast<int64_t>(values.size()));
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    driver_.CopyToDevice(values.data(), reinterpret_cast<std::byte*>(array), bytes);
    BH_CHECK(driver_.Synchronize().ok());
    return array;
  }

  template <typename T>
  std::vector<T> Get(const T* array, int64_t count) {
    std::vector<T> values(count);
    driver_.CopyToHost(reinterpret_cast<const std::byte*>(array), values.data(),
                       count * static_cast<int64_t>(sizeof(T)));
    BH_CHECK(driver_.Synchronize().ok());
    return values;
  }

 private:
  struct Range {
    std::byte* base = nullptr;
    int64_t mapped_bytes = 0;
  };

  int64_t Granule() const { return driver_.properties().map_granule_bytes; }

  CudaDriver& driver_;
  std::vector<Range> ranges_;
};

}  // namespace bulkhead
