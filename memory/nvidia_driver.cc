#include "memory/nvidia_driver.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace bulkhead {
namespace {

std::string CudaText(int version) {
  return absl::StrCat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

}  // namespace

std::string NvidiaDriverVersion(const std::string& root) {
  std::ifstream file(root + "/sys/module/nvidia/version");
  std::string version;
  file >> version;
  return version;
}

bool HasNvidiaGpu(const std::string& root) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/dev", error)) {
    const std::string name = entry.path().filename();
    absl::string_view number = name;
    if (absl::ConsumePrefix(&number, "nvidia") && !number.empty() &&
        std::all_of(number.begin(), number.end(), absl::ascii_isdigit)) {
      return true;
    }
  }
  return false;
}

// NVIDIA's table of minor version compatibility.
int MinNvidiaDriver(int cuda_version) { return cuda_version >= 13000 ? 580 : 525; }

absl::Status OldNvidiaDriver(int driver_cuda, int built_cuda, const std::string& root) {
  const std::string version = NvidiaDriverVersion(root);
  const std::string why = absl::StrCat(
      "the NVIDIA driver", version.empty() ? "" : absl::StrCat(" ", version), " is for ",
      CudaText(driver_cuda), " at most, and this build with ", CudaText(built_cuda),
      " needs driver ", MinNvidiaDriver(built_cuda), " or later");
  if (!HasNvidiaGpu(root)) return absl::UnavailableError(why);
  return absl::FailedPreconditionError(
      absl::StrCat(why, "; update the driver, or use a build with an older CUDA"));
}

}  // namespace bulkhead
