// Other processes on a GPU, from NVML, which comes with the driver and is opened at run time, so
// that the program builds and starts without it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

struct GpuProcess {
  int64_t pid = 0;
  std::string name;        // "" if hidden from /proc (in another container)
  int64_t used_bytes = 0;  // -1 if unknown
};

// The processes with a context on the GPU ("GPU-...") or MIG instance ("MIG-...") of this UUID,
// except `own_pids`. UNIMPLEMENTED without NVML, NOT_FOUND for an unknown UUID, UNAVAILABLE if it
// does not answer. Any thread. `library` is the file to open.
absl::StatusOr<std::vector<GpuProcess>> OtherGpuProcesses(
    absl::string_view uuid, const std::vector<int64_t>& own_pids,
    const std::string& library = "libnvidia-ml.so.1");

// "python (pid 4711) 3.0 GiB, pid 12": for messages; "none known to NVML" for none.
std::string GpuProcessesText(const std::vector<GpuProcess>& processes);

}  // namespace bulkhead
