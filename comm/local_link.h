// LocalLink: the leaders' messages where every rank is a thread of this process, for tests.
#pragma once

#include <memory>
#include <vector>

#include "comm/leader_link.h"
#include "comm/region.h"

namespace bulkhead {

// One link for each node's leader; `regions` [nodes], whose abort ends their waits.
std::vector<std::unique_ptr<LeaderLink>> NewLocalLinks(
    const std::vector<std::shared_ptr<Region>>& regions);

}  // namespace bulkhead
