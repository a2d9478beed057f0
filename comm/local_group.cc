#include "comm/local_group.h"

#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "comm/local_link.h"
#include "comm/multi_host_group.h"
#include "comm/shm_group.h"
#include "comm/single_group.h"

namespace bulkhead {
namespace {

// An exchange with another topology: the same ranks on other nodes.
class RenamedExchange final : public GroupExchange {
 public:
  RenamedExchange(GroupExchange& real, const RankTopology& topology)
      : real_(real), topology_(topology) {}
  const RankTopology& topology() const override { return topology_; }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                     absl::Duration timeout) override {
    return real_.AllGather(mine, timeout);
  }

 private:
  GroupExchange& real_;
  const RankTopology& topology_;
};

}  // namespace

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

std::vector<std::unique_ptr<Group>> NewLocalNodes(const std::vector<int>& node_of_rank) {
  std::vector<std::string> identities;
  for (const int node : node_of_rank) {
    identities.push_back(absl::StrCat("host", node, " boot 1"));
  }
  const auto size = static_cast<int>(node_of_rank.size());
  // The groups are set up over a common one, as processes are over MPI.
  const std::vector<std::unique_ptr<Group>> bootstrap = NewLocalGroups(size);
  std::vector<std::shared_ptr<Region>> regions;  // by node, as mapped by the leader
  std::vector<SharedMemory> memories;            // by node
  std::vector<RankTopology> worlds;              // by rank
  for (int rank = 0; rank < size; ++rank) {
    worlds.push_back(*TopologyFrom(rank, identities));
    if (worlds[rank].local_rank != 0) continue;
    const int local_size = worlds[rank].local_size;
    memories.push_back(*NewThreadSharedMemory(Region::Bytes(local_size)));
    regions.push_back(std::make_shared<Region>(memories.back(), 0, local_size));
  }
  std::vector<std::unique_ptr<LeaderLink>> links = NewLocalLinks(regions);
  std::vector<std::unique_ptr<Group>> groups(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const RankTopology& world = worlds[rank];
      const int node = world.node();
      const bool leader = world.local_rank == 0;
      RenamedExchange exchange(bootstrap[rank]->exchange(), world);
      auto host_liveness = HostLiveness::Connect(exchange, "lo", absl::Minutes(1), &MonotonicNanos);
      BH_CHECK(host_liveness.ok());
      auto region =
          leader ? regions[node]
                 : std::make_shared<Region>(memories[node], world.local_rank, world.local_size);
      auto shm = std::make_unique<ShmGroup>(region, NodeTopology(world), &ShareBetweenThreads);
      groups[rank] = std::make_unique<MultiHostGroup>(
          region, std::move(shm), world, leader ? std::move(links[node]) : nullptr,
          *std::move(host_liveness), &ShareBetweenThreads);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}

}  // namespace bulkhead
