// GPUs by name, for planning without one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace bulkhead {

struct GpuModel {
  const char* name;
  int64_t usable_bytes;    // total reported by the driver, without ECC and firmware
  int compute_capability;  // 90 for 9.0

  int64_t max_shared_bytes() const;  // shared memory per block
};

// In upper or lower case; nullopt for an unknown name.
std::optional<GpuModel> FindGpu(absl::string_view name);
std::vector<std::string> GpuNames();  // only usable ones

// Older ones are known, to be refused with the reason.
inline constexpr int kMinComputeCapability = 80;

}  // namespace bulkhead
