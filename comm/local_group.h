#pragma once

#include <memory>
#include <vector>

#include "comm/group.h"

namespace bulkhead {

// A group whose ranks are threads of this process, 1 to 64 of them: element r is rank r's. What
// processes of one host do over shared memory, over plain memory.
std::vector<std::unique_ptr<Group>> NewLocalGroups(int size);

// The same as if rank r were on node node_of_rank[r], of at least two; node 0 is rank 0's. What
// hosts do over MPI goes through a LocalLink; the liveness between them is real, over loopback.
std::vector<std::unique_ptr<Group>> NewLocalNodes(const std::vector<int>& node_of_rank);

}  // namespace bulkhead
