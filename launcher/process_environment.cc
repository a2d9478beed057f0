#include "launcher/process_environment.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "comm/launch_environment.h"

namespace bulkhead {

void SetProcessEnvironment() {
  constexpr int kKeep = 0;
  // No log lines on standard error: clients could flood it with compressed requests, and our own
  // last line names the cause of an end.
  setenv("GRPC_VERBOSITY", "NONE", kKeep);
  // We refuse ranks that share a GPU unless requested; NCCL from 2.30 on checks again.
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", kKeep);
  // All NCCL calls are on one stream: no events needed between captured and eager calls.
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", kKeep);
  // Otherwise NCCL from 2.22 on connects an algorithm at its first use, taking memory after READY.
  setenv("NCCL_RUNTIME_CONNECT", "0", kKeep);
  SetMpiEnvironment(ReadLaunchEnvironment(&std::getenv));
}

absl::Status EnsureStacks() {
  constexpr size_t kThreadBytes = size_t{2} << 20;  // glibc's default without a limit
  constexpr rlim_t kMainBytes = rlim_t{1} << 20;    // grows up to the limit that is set then
  pthread_attr_t threads;
  size_t bytes = 0;
  if (pthread_getattr_default_np(&threads) == 0) {
    pthread_attr_getstacksize(&threads, &bytes);
    pthread_attr_setstacksize(&threads, std::max(bytes, kThreadBytes));
    pthread_setattr_default_np(&threads);
    pthread_attr_destroy(&threads);
  }
  rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kMainBytes) return absl::OkStatus();
  limit.rlim_cur = std::min(limit.rlim_max, kMainBytes);
  setrlimit(RLIMIT_STACK, &limit);
  if (limit.rlim_cur == kMainBytes) return absl::OkStatus();
  return WithExitCode(absl::ResourceExhaustedError(absl::StrCat(
                          "the limit of the stack is ", limit.rlim_max >> 10,
                          " KiB, and the program needs ", kMainBytes >> 10, "; raise ulimit -s")),
                      ExitCode::kGroupNotUp);
}

}  // namespace bulkhead
