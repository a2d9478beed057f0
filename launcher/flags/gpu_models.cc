#include "launcher/flags/gpu_models.h"

namespace bulkhead {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

constexpr GpuModel kGpus[] = {
    {"v100-16", 16'151 * kMiB, 70}, {"v100-32", 32'501 * kMiB, 70}, {"t4", 14'913 * kMiB, 75},
    {"a10", 22'592 * kMiB, 86},     {"a10g", 22'592 * kMiB, 86},    {"l4", 22'565 * kMiB, 89},
    {"rtx3090", 24'115 * kMiB, 86}, {"rtx4090", 24'082 * kMiB, 89}, {"l40s", 45'400 * kMiB, 89},
    {"a100-40", 40'326 * kMiB, 80}, {"a100-80", 81'051 * kMiB, 80}, {"h100", 81'079 * kMiB, 90},
    {"h200", 143'156 * kMiB, 90},
};

}  // namespace

std::optional<GpuModel> FindGpu(absl::string_view name) {
  for (const GpuModel& gpu : kGpus) {
    if (name == gpu.name) return gpu;
  }
  return std::nullopt;
}

std::vector<std::string> GpuNames() {
  std::vector<std::string> names;
  for (const GpuModel& gpu : kGpus) names.emplace_back(gpu.name);
  return names;
}

}  // namespace bulkhead
