// A fake NVML: one GPU with three processes, the first of which is the caller; a failing GPU; and
// no others.
#include <unistd.h>

#include <cstring>

namespace {

struct Process {
  unsigned pid;
  unsigned long long used_bytes;  // NOLINT(google-runtime-int): the library's own type
  unsigned gpu_instance;
  unsigned compute_instance;
};

int open_count = 0;
int good_gpu;
int bad_gpu;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++open_count;
  return 0;
}

int nvmlShutdown() { return --open_count; }

const char* nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "Unknown Error"; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  constexpr int kNotFound = 6;
  if (open_count != 1) return 1;  // not initialised
  *device = std::strcmp(uuid, "GPU-1111") == 0   ? &good_gpu
            : std::strcmp(uuid, "GPU-2222") == 0 ? &bad_gpu
                                                 : nullptr;
  return *device == nullptr ? kNotFound : 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  constexpr int kGpuIsLost = 15;
  constexpr int kInsufficientSize = 7;
  if (device == &bad_gpu) return kGpuIsLost;
  if (*count < 3) return kInsufficientSize;
  *count = 3;
  processes[0] = {static_cast<unsigned>(getpid()), 1 << 30, 0, 0};
  processes[1] = {static_cast<unsigned>(getppid()), 3ULL << 30, 0, 0};
  processes[2] = {4294967290U, ~0ULL, 0, 0};  // a nonexistent process; its memory is unknown
  return 0;
}

}  // extern "C"
