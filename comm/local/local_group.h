// Groups within one process, without MPI: one rank, or ranks that are threads, for tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/group.h"

namespace bulkhead {

// A group of one rank: no sharing.
std::unique_ptr<Group> NewSingleGroup();

// A group whose ranks are threads of this process, 1 to 64: element r is rank r's. Uses plain
// memory in place of shared memory between processes.
std::vector<std::unique_ptr<Group>> NewLocalGroups(int size);

// The same with rank r on node node_of_rank[r]; at least two nodes, rank 0 on node 0. Messages
// through the process's memory replace MPI between hosts; the liveness between them is real, over
// loopback. `tensor_bytes`: counts bytes that nodes send one another for sums and gathers.
std::vector<std::unique_ptr<Group>> NewLocalNodes(const std::vector<int>& node_of_rank,
                                                  std::atomic<int64_t>* tensor_bytes = nullptr);

}  // namespace bulkhead
