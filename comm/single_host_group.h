#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/group.h"
#include "comm/region.h"
#include "comm/shm_group.h"

namespace bulkhead {

// A group of processes of one host, set up over `bootstrap`, which is not used afterwards.
// Collective; ends in agreement. UNIMPLEMENTED if there are too many, FAILED_PRECONDITION if the
// ranks cannot see each other's processes (ExitCode::kGroupNotUp).
absl::StatusOr<std::unique_ptr<Group>> NewSingleHostGroup(GroupExchange& bootstrap,
                                                          absl::Duration timeout);

// This host's part of a multi-host group: what its ranks share. Collective over `bootstrap`, which
// has only this host's ranks; ends in their agreement.
struct HostPart {
  std::shared_ptr<Region> region;
  std::unique_ptr<ShmGroup> group;
};
absl::StatusOr<HostPart> NewHostPart(GroupExchange& bootstrap, absl::Duration timeout);

}  // namespace bulkhead
