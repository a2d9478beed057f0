// RankTopology: this rank's place in its group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/lost_rank.h"

namespace bulkhead {

struct RankTopology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  int local_cores = 1;  // allowed cores of all ranks of this host (union of affinity masks)
  std::vector<std::string> hosts;  // [size] host name of each rank
  // [size] node of each rank: hosts numbered by their lowest rank, so rank 0 is on node 0. Empty if
  // all ranks are on one node.
  std::vector<int> nodes;
  // [size] for a subset of a larger group: each rank's number there. Otherwise empty.
  std::vector<int> world_ranks;

  bool coordinator() const { return rank == 0; }
  bool one_host() const { return local_size == size; }
  int node() const { return nodes.empty() ? 0 : nodes[rank]; }
  int num_nodes() const;
  // The ranks of a node, ascending; the first is its leader.
  std::vector<int> RanksOf(int node) const;
  // Name in messages: "rank 2 (host a)", or with `process` "rank 2 (host a, pid 4711)".
  std::string NameOf(int r, int64_t pid = 0) const;
  // The payload of a status that reports the loss of rank r.
  LostRank LostRankAt(int r) const;
};

// Host name, boot id and affinity mask as one line of text, to be gathered. $BULKHEAD_NODE_NAME
// overrides the name: ranks on one machine with different names are treated as on several hosts, as
// is necessary for containers that cannot see each other's processes.
std::string HostIdentity();

// The ranks of `world`'s own node as a topology of their own.
RankTopology NodeTopology(const RankTopology& world);

// The topology from the identities [size] of all ranks, for `rank`. Ranks share a host if name and
// boot id are equal. INVALID_ARGUMENT if an identity is malformed.
absl::StatusOr<RankTopology> TopologyFrom(int rank, absl::Span<const std::string> identities);

}  // namespace bulkhead
