#pragma once

#include <memory>

#include "comm/group.h"

namespace bulkhead {

// A group of one process: nothing shared, no MPI.
std::unique_ptr<Group> NewSingleGroup();

}  // namespace bulkhead
