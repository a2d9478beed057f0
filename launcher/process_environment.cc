#include "launcher/process_environment.h"

#include <cstdlib>

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
  // NCCL from 2.22 on else connects an algorithm at its first use: memory taken behind READY.
  setenv("NCCL_RUNTIME_CONNECT", "0", kKeep);
  SetMpiEnvironment(ReadLaunchEnvironment(&std::getenv));
}

}  // namespace bulkhead
