#include "comm/local_group.h"

#include <string>

#include "comm/shm_group.h"
#include "comm/single_group.h"
#include "memory/check.h"

namespace bulkhead {

std::vector<std::unique_ptr<Group>> NewLocalGroups(int size) {
  std::vector<std::unique_ptr<Group>> groups;
  if (size == 1) {
    groups.push_back(NewSingleGroup());
    return groups;
  }
  const absl::StatusOr<SharedMemory> memory = NewThreadSharedMemory(Region::Bytes(size));
  BH_CHECK(memory.ok());
  const std::vector<std::string> identities(size, HostIdentity());
  for (int rank = 0; rank < size; ++rank) {
    const absl::StatusOr<RankTopology> topology = TopologyFrom(rank, identities);
    BH_CHECK(topology.ok());
    groups.push_back(std::make_unique<ShmGroup>(std::make_shared<Region>(*memory, rank, size),
                                                *topology, &ShareBetweenThreads));
  }
  return groups;
}

}  // namespace bulkhead
