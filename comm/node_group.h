#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/group.h"

namespace bulkhead {

// A group whose ranks are processes of one host that meet over `bootstrap`, which is not used
// afterwards. Collective; ends in agreement. UNIMPLEMENTED naming the hosts when there are several,
// FAILED_PRECONDITION when the ranks do not see each other's processes (ExitCode::kGroupNotUp).
absl::StatusOr<std::unique_ptr<Group>> NewNodeGroup(GroupExchange& bootstrap,
                                                    absl::Duration timeout);

}  // namespace bulkhead
