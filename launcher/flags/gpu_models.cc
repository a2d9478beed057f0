#include "launcher/flags/gpu_models.h"

#include "absl/strings/match.h"

namespace bulkhead {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// As CUDA reports it, or from public figures and rounded down.
constexpr GpuModel kGpus[] = {
    {"v100-16", 16'151 * kMiB, 70},     {"v100-32", 32'501 * kMiB, 70},
    {"t4", 14'913 * kMiB, 75},          {"a10", 22'592 * kMiB, 86},
    {"a10g", 22'592 * kMiB, 86},        {"l4", 22'565 * kMiB, 89},
    {"l20", 45'500 * kMiB, 89},         {"l40s", 45'400 * kMiB, 89},
    {"a6000", 48'600 * kMiB, 86},       {"rtx3090", 24'115 * kMiB, 86},
    {"rtx4090", 24'082 * kMiB, 89},     {"rtx5090", 32'122 * kMiB, 120},
    {"a100-40", 40'326 * kMiB, 80},     {"a100-80", 81'051 * kMiB, 80},
    {"rtxpro6000", 97'200 * kMiB, 120}, {"h100", 81'079 * kMiB, 90},
    {"h20", 97'200 * kMiB, 90},         {"h200", 143'156 * kMiB, 90},
    {"b200", 182'600 * kMiB, 100},      {"gb200", 188'700 * kMiB, 100},
    {"b300", 274'000 * kMiB, 103},
};

}  // namespace

int64_t GpuModel::max_shared_bytes() const {
  if (compute_capability == 80) return 163 << 10;
  const bool small = compute_capability < 90 || compute_capability >= 120;
  return (small ? 99 : 227) << 10;
}

std::optional<GpuModel> FindGpu(absl::string_view name) {
  for (const GpuModel& gpu : kGpus) {
    if (absl::EqualsIgnoreCase(name, gpu.name)) return gpu;
  }
  return std::nullopt;
}

std::vector<std::string> GpuNames() {
  std::vector<std::string> names;
  for (const GpuModel& gpu : kGpus) {
    if (gpu.compute_capability >= kMinComputeCapability) names.emplace_back(gpu.name);
  }
  return names;
}

}  // namespace bulkhead
