// RankTopology: who this rank is in its group.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace bulkhead {

struct RankTopology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  int local_cores = 1;  // cores that the ranks of this host may use, all together (affinity masks)
  std::vector<std::string> hosts;  // [size] host name of each rank

  bool coordinator() const { return rank == 0; }
  bool one_host() const { return local_size == size; }
};

// Where this process runs: host name, boot id and affinity mask as one line of text, to be
// gathered.
std::string HostIdentity();

// The topology that the identities [size] of all ranks add up to, seen from `rank`. Ranks share a
// host when name and boot id are equal. INVALID_ARGUMENT when an identity is malformed.
absl::StatusOr<RankTopology> TopologyFrom(int rank, absl::Span<const std::string> identities);

}  // namespace bulkhead
