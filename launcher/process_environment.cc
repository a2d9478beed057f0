#include "launcher/process_environment.h"

#include <cstdlib>

#include "comm/launch_environment.h"

namespace bulkhead {

void SetProcessEnvironment() {
  constexpr int kKeep = 0;
  // No lines on standard error: any client could fill it with requests that are compressed, and our
  // own last line names the cause of an end.
  setenv("GRPC_VERBOSITY", "NONE", kKeep);
  // Ranks that share a GPU are refused unless it is meant; NCCL from 2.30 on asks again.
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", kKeep);
  // All that NCCL does is on one stream: calls in graphs need no events between them and those
  // outside.
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", kKeep);
  SetMpiEnvironment(ReadLaunchEnvironment(&std::getenv));
}

}  // namespace bulkhead
