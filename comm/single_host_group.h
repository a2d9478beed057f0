#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/group.h"
#include "comm/region.h"
#include "comm/shm_group.h"

namespace bulkhead {

// A group whose ranks are processes of one host that meet over `bootstrap`, which is not used
// afterwards. Collective; ends in agreement. UNIMPLEMENTED when they are too many,
// FAILED_PRECONDITION when the ranks do not see each other's processes (ExitCode::kGroupNotUp).
absl::StatusOr<std::unique_ptr<Group>> NewSingleHostGroup(GroupExchange& bootstrap,
                                                          absl::Duration timeout);

// This host's part of a group on several: what its ranks share. Collective over `bootstrap`, which
// has this host's ranks alone; ends in their agreement.
struct HostPart {
  std::shared_ptr<Region> region;
  std::unique_ptr<ShmGroup> group;
};
absl::StatusOr<HostPart> NewHostPart(GroupExchange& bootstrap, absl::Duration timeout);

}  // namespace bulkhead
