// The cores, NUMA nodes and threads of a rank: agreed among the ranks of a host, which share them.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/exchange.h"
#include "launcher/flags/options.h"

namespace bulkhead {

struct ThreadConfig {
  int num_threads = 1;
  int cores_allowed = 1;        // for this rank
  bool may_spin = true;         // false if the host's ranks x threads exceed its cores
  std::vector<int> numa_nodes;  // for its memory (memory/numa.h); empty: not placed
};

// Collective over the group; binds the calling thread, and those that it creates later, to the
// rank's cores and memory. The default number of threads is this rank's share of the physical
// cores. `cuda`: memory and cores follow the GPU and are not bound here.
absl::StatusOr<ThreadConfig> PlaceAndCountThreads(const EngineOptions& options, bool cuda,
                                                  GroupExchange& exchange);

// Logs how much of this rank's memory is on its NUMA nodes; a warning below 95 %.
void LogNumaBytes(const ThreadConfig& threads, int rank);

}  // namespace bulkhead
