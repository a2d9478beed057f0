#pragma once

#include <memory>

#include "comm/group.h"

namespace bulkhead {

// A group of one process: no sharing, no MPI.
std::unique_ptr<Group> NewSingleGroup();

}  // namespace bulkhead
