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
  int64_t usable_bytes;    // what the driver reports as total, ECC and firmware taken off
  int compute_capability;  // 90 for 9.0
};

// Nullopt for a name that is not in the table.
std::optional<GpuModel> FindGpu(absl::string_view name);
std::vector<std::string> GpuNames();

// Older ones can be planned for, not run on.
inline constexpr int kLeastComputeCapability = 80;

}  // namespace bulkhead
