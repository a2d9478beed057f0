#include "memory/gpu_processes.h"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/status.h"

namespace bulkhead {
namespace {

// The part of NVML's ABI that is used; stable since driver 510.
using NvmlDevice = void*;
struct NvmlProcess {
  unsigned pid;
  unsigned long long used_bytes;  // NOLINT(google-runtime-int): the library's own type
  unsigned gpu_instance;
  unsigned compute_instance;
};
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlInsufficientSize = 7;
constexpr unsigned kMaxProcesses = 256;

class Nvml {
 public:
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library) {
    auto nvml = std::unique_ptr<Nvml>(new Nvml(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)));
    if (nvml->library_ == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("NVML is not available, so no process can be named: ", dlerror()));
    }
    const bool complete = nvml->Find("nvmlInit_v2", &nvml->init_) &&
                          nvml->Find("nvmlShutdown", &nvml->shutdown_) &&
                          nvml->Find("nvmlErrorString", &nvml->error_text_) &&
                          nvml->Find("nvmlDeviceGetHandleByUUID", &nvml->by_uuid_) &&
                          nvml->Find("nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes_);
    if (!complete) {
      return absl::UnimplementedError(
          absl::StrCat(library, " is older than driver 510, so no process can be named"));
    }
    const int code = nvml->init_();
    nvml->started_ = code == kNvmlSuccess;
    if (!nvml->started_) return nvml->Failure("nvmlInit", code);
    return nvml;
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (started_) shutdown_();
    if (library_ != nullptr) dlclose(library_);
  }

  absl::StatusOr<NvmlDevice> DeviceOf(absl::string_view uuid) const {
    NvmlDevice device = nullptr;
    if (by_uuid_(std::string(uuid).c_str(), &device) == kNvmlSuccess) return device;
    return absl::NotFoundError(absl::StrCat("NVML knows no ", uuid));
  }

  absl::StatusOr<std::vector<NvmlProcess>> Processes(NvmlDevice device) const {
    std::vector<NvmlProcess> processes(kMaxProcesses);
    unsigned count = kMaxProcesses;
    const int code = processes_(device, &count, processes.data());
    if (code != kNvmlSuccess && code != kNvmlInsufficientSize) {
      return Failure("nvmlDeviceGetComputeRunningProcesses", code);
    }
    processes.resize(std::min(count, kMaxProcesses));
    return processes;
  }

 private:
  explicit Nvml(void* library) : library_(library) {}

  template <typename Function>
  bool Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
    return *function != nullptr;
  }
  absl::Status Failure(const char* call, int code) const {
    return absl::UnavailableError(absl::StrCat(call, ": ", error_text_(code)));
  }

  void* library_;
  bool started_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  const char* (*error_text_)(int) = nullptr;
  int (*by_uuid_)(const char*, NvmlDevice*) = nullptr;
  int (*processes_)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
};

std::string NameOf(int64_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/comm"));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

absl::StatusOr<std::vector<GpuProcess>> OtherGpuProcesses(absl::string_view uuid,
                                                          const std::vector<int64_t>& own_pids,
                                                          const std::string& library) {
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<Nvml> nvml, Nvml::Open(library));
  BH_ASSIGN_OR_RETURN(const NvmlDevice device, nvml->DeviceOf(uuid));
  BH_ASSIGN_OR_RETURN(const std::vector<NvmlProcess> found, nvml->Processes(device));
  std::vector<GpuProcess> others;
  for (const NvmlProcess& process : found) {
    const int64_t pid = process.pid;
    if (std::count(own_pids.begin(), own_pids.end(), pid) > 0) continue;
    others.push_back({pid, NameOf(pid), static_cast<int64_t>(process.used_bytes)});
  }
  return others;
}

std::string GpuProcessesText(const std::vector<GpuProcess>& processes) {
  if (processes.empty()) return "none known to NVML";
  return absl::StrJoin(processes, ", ", [](std::string* out, const GpuProcess& process) {
    absl::StrAppend(out, process.name.empty() ? "" : process.name + " (", "pid ", process.pid,
                    process.name.empty() ? "" : ")");
    if (process.used_bytes >= 0) absl::StrAppend(out, " ", FormatBytes(process.used_bytes));
  });
}

}  // namespace bulkhead
