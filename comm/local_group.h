#pragma once

#include <memory>
#include <vector>

#include "comm/group.h"

namespace bulkhead {

// A group whose ranks are threads of this process, 1 to 64 of them: element r is rank r's. What
// processes of one host do over shared memory, over plain memory.
std::vector<std::unique_ptr<Group>> NewLocalGroups(int size);

}  // namespace bulkhead
