// RankTopology: who this rank is in its group.
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
  int local_cores = 1;  // cores that the ranks of this host may use, all together (affinity masks)
  std::vector<std::string> hosts;  // [size] host name of each rank
  // [size] node of each rank: hosts numbered by their lowest rank, so that rank 0 is on node 0.
  // Empty when all ranks are on one.
  std::vector<int> nodes;
  // [size] where these are some ranks of a larger group: what each is called there. Else empty.
  std::vector<int> world_ranks;

  bool coordinator() const { return rank == 0; }
  bool one_host() const { return local_size == size; }
  int node() const { return nodes.empty() ? 0 : nodes[rank]; }
  int num_nodes() const;
  // The ranks of a node, ascending; the first is its leader.
  std::vector<int> RanksOf(int node) const;
  // How messages call rank r: "rank 2 (host a)", or with `process` "rank 2 (host a, pid 4711)".
  std::string NameOf(int r, int64_t pid = 0) const;
  // What a status carries that says that rank r was lost.
  LostRank LostRankAt(int r) const;
};

// Where this process runs: host name, boot id and affinity mask as one line of text, to be
// gathered. The name is $BULKHEAD_NODE_NAME where that is set: ranks of one machine that are given
// different ones meet as if they were on several, as containers of one machine must that cannot see
// each other's processes.
std::string HostIdentity();

// The ranks of `world`'s own node as a topology of their own.
RankTopology NodeTopology(const RankTopology& world);

// The topology that the identities [size] of all ranks add up to, seen from `rank`. Ranks share a
// host when name and boot id are equal. INVALID_ARGUMENT when an identity is malformed.
absl::StatusOr<RankTopology> TopologyFrom(int rank, absl::Span<const std::string> identities);

}  // namespace bulkhead
