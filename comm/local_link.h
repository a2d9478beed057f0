// LocalLink: leader messages where all ranks are threads of this process, for tests.
#pragma once

#include <memory>
#include <vector>

#include "comm/leader_link.h"
#include "comm/region.h"

namespace bulkhead {

// One link per node leader; `regions` [nodes]: an abort there ends their waits.
std::vector<std::unique_ptr<LeaderLink>> NewLocalLinks(
    const std::vector<std::shared_ptr<Region>>& regions);

}  // namespace bulkhead
