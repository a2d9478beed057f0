// Groups on several nodes, whose ranks are threads.
#include "comm/tree/multi_host_group.h"
#include "base/clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/lost_rank.h"
#include "comm/local/local_group.h"
#include "comm/tree/tree_communicator.h"
#include "tests/comm/terms.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Nodes = std::vector<int>;  // of each rank

constexpr absl::Duration kLong = absl::Minutes(1);

// In order and even, uneven, one rank per node, three nodes, round-robin, one node inside another;
// four and eight nodes that use recursive doubling, and four that cannot.
const Nodes kLayouts[] = {{0, 0, 1, 1},
                          {0, 0, 0, 1},
                          {0, 1},
                          {0, 1, 2},
                          {0, 1, 0, 1},
                          {0, 1, 1, 0, 2},
                          {0, 0, 1, 1, 2, 2, 3, 3},
                          {0, 1, 2, 3, 4, 5, 6, 7},
                          {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3},
                          {0, 0, 0, 0, 1, 1, 2, 3}};

std::string NameOf(const Nodes& nodes) {
  std::string name = "nodes";
  for (const int node : nodes) absl::StrAppend(&name, "_", node);
  return name;
}

class MultiHostGroupTest : public testing::TestWithParam<Nodes> {};
INSTANTIATE_TEST_SUITE_P(Layouts, MultiHostGroupTest, testing::ValuesIn(kLayouts),
                         [](const auto& info) { return NameOf(info.param); });

std::string Message(int rank, int round) {
  const size_t lengths[] = {0, 5, 4096, 4097, 50'000};
  return std::string(lengths[(rank + round) % 5], static_cast<char>('a' + (rank * 5 + round) % 26));
}

TEST_P(MultiHostGroupTest, TheExchangeGivesEveryRankWhatEveryRankPutIn) {
  RunRanksOf(NewLocalNodes(GetParam()), [&](Group& group) {
    const RankTopology& topology = group.exchange().topology();
    for (int round = 0; round < 20; ++round) {
      const auto all = group.exchange().AllGather(Message(topology.rank, round), kLong);
      ASSERT_TRUE(all.ok()) << all.status();
      ASSERT_EQ(static_cast<int>(all->size()), topology.size);
      for (int r = 0; r < topology.size; ++r) ASSERT_EQ((*all)[r], Message(r, round));
    }
  });
}

TEST_P(MultiHostGroupTest, TheBusCarriesMessagesOfAnyLengthInOrder) {
  RunRanksOf(NewLocalNodes(GetParam()), [](Group& group) {
    std::string message;
    for (int round = 0; round < 40; ++round) {
      const std::string plan(round * round * 100, static_cast<char>('a' + round % 26));
      if (group.exchange().topology().coordinator()) {
        ASSERT_TRUE(group.bus().Publish(plan).ok());
      } else {
        ASSERT_TRUE(group.bus().Receive(&message).ok());
        ASSERT_EQ(message, plan);
      }
    }
  });
}

// Sums and gathers of one rank, against the expected values.
void SumAndGather(Group& group, const CommLimits& limits) {
  const int size = group.exchange().topology().size;
  const std::unique_ptr<Device> device = NewHostDevice(0);
  MemoryLedger ledger(*device);
  ledger.Claim(MemoryCategory::kCommunication, CommunicationBytes(limits, size));
  const auto connected = group.Connect(limits, ledger);
  ASSERT_TRUE(connected.ok()) << connected.status();
  ledger.Seal();
  Communicator& comm = **connected;
  for (int round = 0; round < 40; ++round) {
    const int64_t lengths[] = {1, 7, 1000, 5000, limits.max_sum_elements};
    const int64_t elements = std::min(lengths[round % 5], limits.max_sum_elements);
    const std::vector<float> partial = MakePartialSum(round, comm.rank(), elements);
    std::copy(partial.begin(), partial.end(), comm.PartialSum(1, elements).F32());
    const auto sum = comm.AllReduceSum();
    ASSERT_TRUE(sum.ok()) << sum.status();
    ASSERT_TRUE(SameBits(sum->F32(), ExpectedSum(round, size, elements)));

    // Rank r contributes r + 1 columns, every third time none.
    std::vector<int64_t> cols;
    int64_t width = 0;
    for (int r = 0; r < size; ++r) width += cols.emplace_back((r + round) % 3 == 0 ? 0 : r + 1);
    const int64_t rows = 1 + round % 3;
    const int64_t own = cols[comm.rank()];
    const std::vector<float> part(rows * own, static_cast<float>(100 * round + comm.rank()));
    std::vector<float> out(rows * (width + 1), -1.0F);
    const bool first = comm.rank() == 0;
    const MatrixView view(reinterpret_cast<std::byte*>(out.data()), DType::kF32, rows, width,
                          width + 1);
    const ConstMatrixView mine(reinterpret_cast<const std::byte*>(part.data()), DType::kF32, rows,
                               own);
    ASSERT_TRUE(comm.GatherCols(mine, cols, first ? view : MatrixView()).ok());
    ASSERT_TRUE(SameBits(sum->F32(), ExpectedSum(round, size, elements))) << "a gather touched it";
    for (int64_t row = 0; first && row < rows; ++row) {
      const float* at = view.F32(row);
      for (int r = 0; r < size; ++r) {
        for (int64_t i = 0; i < cols[r]; ++i) ASSERT_EQ(*at++, static_cast<float>(100 * round + r));
      }
      ASSERT_EQ(*at, -1.0F);  // the stride's gap is untouched
    }
    ASSERT_EQ(GatherRowsOnce(comm, round), "") << "round " << round;
    ASSERT_TRUE(SameBits(sum->F32(), ExpectedSum(round, size, elements))) << "a gather touched it";
  }
}

TEST_P(MultiHostGroupTest, SumsHaveTheBitsOfOneNodeAndGathersAreWhole) {
  for (const int64_t elements : {200, 6000, 100'000}) {  // all small; some large
    RunRanksOf(NewLocalNodes(GetParam()), [&](Group& group) {
      SumAndGather(group, {.max_sum_elements = elements, .max_gather_elements = 200});
    });
  }
}

TEST(TreeCommunicator, ARankTouchesItsShareOfTheStagingMemoryBeforeAnySum) {
  constexpr CommLimits kLargeSums{.max_sum_elements = 100'000, .max_gather_elements = 200};
  const std::vector<std::string> identities = {"a boot 1", "a boot 1", "b boot 1"};
  const absl::StatusOr<RankTopology> world = TopologyFrom(1, identities);
  const CommunicationLayout layout(kLargeSums, 3);
  ASSERT_TRUE(world.ok() && layout.shared_result_bytes > 0);
  const SharedMemory tensors = *NewThreadSharedMemory(2 * layout.MappedBytes());
  std::byte* const share = tensors.get() + 4 * layout.slot_bytes + layout.shared_result_bytes;
  std::vector<unsigned char> resident(layout.shared_result_bytes / kPageBytes);
  const auto touched = [&] {
    EXPECT_EQ(mincore(share, layout.shared_result_bytes, resident.data()), 0);
    return std::count(resident.begin(), resident.end(), 1);
  };
  EXPECT_EQ(touched(), 0);
  const TreeCommunicator comm(
      std::make_shared<Region>(*NewThreadSharedMemory(Region::Bytes(2)), 1, 2), *world,
      /*link=*/nullptr, kLargeSums, tensors, Buffer());
  EXPECT_EQ(touched(), std::ssize(resident));
}

TEST(Subtrees, AreTheLargestSubtreesOfANode) {
  const auto subtrees_of = [](const Nodes& nodes) {
    std::vector<std::string> texts;
    for (const Subtree& subtree : Subtrees(nodes)) {
      texts.push_back(absl::StrCat(subtree.begin, "-", subtree.end, "@", subtree.node));
    }
    return texts;
  };
  EXPECT_THAT(subtrees_of({0, 0, 1, 1}), ElementsAre("0-2@0", "2-4@1"));
  EXPECT_THAT(subtrees_of({0, 0, 0, 1}), ElementsAre("0-2@0", "2-3@0", "3-4@1"));
  EXPECT_THAT(subtrees_of({0, 1, 1}), ElementsAre("0-1@0", "1-2@1", "2-3@1"));
  EXPECT_THAT(subtrees_of({0, 1, 0, 1}), ElementsAre("0-1@0", "1-2@1", "2-3@0", "3-4@1"));
}

TEST(Subtrees, AreAddedInPairsWhereTheTreeOverNodesIsFull) {
  for (const Nodes& full : {Nodes{0, 1}, Nodes{0, 0, 1, 1}, Nodes{0, 1, 2, 3},
                            Nodes{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}}) {
    EXPECT_TRUE(UsesRecursiveDoubling(full)) << NameOf(full);
  }
  for (const Nodes& other : {Nodes{0, 0, 0, 1}, Nodes{0, 1, 2}, Nodes{0, 1, 0, 1},
                             Nodes{0, 1, 2, 3, 4, 5}, Nodes{0, 0, 0, 0, 1, 1, 2, 3}}) {
    EXPECT_FALSE(UsesRecursiveDoubling(other)) << NameOf(other);
  }
}

TEST(MultiHostGroup, AMissingRankIsNamedByItsOwnNode) {
  RunRanksOf(NewLocalNodes({0, 0, 1, 1}), [](Group& group) {
    const RankTopology& topology = group.exchange().topology();
    if (topology.rank == 3) return;
    const auto all = group.exchange().AllGather("here", absl::Milliseconds(50));
    EXPECT_EQ(ExitCodeOf(all.status()), ExitCode::kGroupNotUp);
    EXPECT_THAT(std::string(all.status().message()),
                HasSubstr(topology.rank == 2 ? "rank 3 (host host1" : "did not arrive"));
  });
}

TEST(MultiHostGroup, AFailureIsNamedByItsRankInTheWholeGroup) {
  RunRanksOf(NewLocalNodes({0, 1, 1}), [](Group& group) {
    const bool fails = group.exchange().topology().rank == 2;
    const absl::Status agreed = Agree(group.exchange(), "load",
                                      fails ? absl::DataLossError("cut") : absl::OkStatus(), kLong);
    EXPECT_EQ(agreed.message(), "rank 2 (host host1): cut");
  });
}

// Calls Check until it reports the loss, as a watchdog would.
absl::Status AwaitLoss(GroupLiveness& liveness, absl::Duration silence) {
  const int64_t until_ns = MonotonicNanos() + 30'000'000'000;
  while (MonotonicNanos() < until_ns) {
    liveness.Beat();
    absl::Status lost = liveness.Check(silence);
    if (!lost.ok()) return lost;
    pollfd watched = {liveness.fd(), POLLIN, 0};
    poll(&watched, 1, 10);
  }
  return absl::OkStatus();
}

TEST(MultiHostGroup, WhyOneRankGivesUpReachesAllNodes) {
  const LostRank lost_rank = {3, "c"};
  const auto why = WithLostRank(
      WithExitCode(absl::AbortedError("rank 3 has had enough"), ExitCode::kRankLost), lost_rank);
  RunRanksOf(NewLocalNodes({0, 1, 2, 2}), [&](Group& group) {
    if (group.exchange().topology().rank == 3) group.liveness().Abort(why);
    const absl::Status lost = AwaitLoss(group.liveness(), absl::Minutes(1));
    group.liveness().Abort(lost);  // as a watchdog does
    EXPECT_EQ(lost.message(), why.message());
    EXPECT_EQ(ExitCodeOf(lost), ExitCode::kRankLost);
    EXPECT_EQ(LostRankOf(lost), lost_rank);
  });
}

TEST(MultiHostGroup, EveryRankOfAHostKnowsWhichHostItWaitsFor) {
  std::atomic<int> seen = 0;
  RunRanksOf(NewLocalNodes({0, 1, 1}), [&](Group& group) {
    std::string message;
    if (group.exchange().topology().rank == 0) {
      while (seen < 2) std::this_thread::yield();
      ASSERT_TRUE(group.bus().Publish("go on").ok());
      return;
    }
    std::thread watchdog([&] {
      while (group.liveness().FindStragglers().names != "rank 0 (host host0)") {
        std::this_thread::yield();
      }
      EXPECT_TRUE(group.liveness().FindStragglers().elsewhere);
      ++seen;
    });
    ASSERT_TRUE(group.bus().Receive(&message).ok());
    watchdog.join();
    EXPECT_EQ(group.liveness().FindStragglers().names, "");
  });
}

TEST(MultiHostGroup, ASilentNodeIsNamedByItsLeader) {
  RunRanksOf(NewLocalNodes({0, 1}), [](Group& group) {
    if (group.exchange().topology().rank == 1) {
      group.liveness().Beat();  // a single heartbeat
      return;
    }
    const absl::Status lost = AwaitLoss(group.liveness(), absl::Milliseconds(300));
    EXPECT_THAT(std::string(lost.message()), HasSubstr("rank 1 (host host1, pid "));
    EXPECT_THAT(std::string(lost.message()), HasSubstr("was silent for "));
    EXPECT_EQ(ExitCodeOf(lost), ExitCode::kRankLost);
  });
}

std::atomic<int64_t> fake_ms;

struct Heartbeat {
  int rank = 0;
  int64_t at_ms = 0;
};

// What rank 0 says at `now_ms` after these heartbeats of ranks 1 and 2, which are on another host.
std::string LossAfter(const std::vector<Heartbeat>& heartbeats, int64_t now_ms) {
  std::string lost;
  RunRanksOf(NewLocalNodes({0, 1, 1}), [&](Group& group) {
    const int rank = group.exchange().topology().rank;
    const auto host_liveness =
        HostLiveness::Connect(group.exchange(), "", kLong, [] { return fake_ms * 1'000'000; });
    ASSERT_TRUE(host_liveness.ok()) << host_liveness.status();
    for (const Heartbeat& heartbeat : heartbeats) {
      if (rank == heartbeat.rank) (*host_liveness)->Beat();
      if (rank == 0) {
        fake_ms = heartbeat.at_ms;
        pollfd watched = {(*host_liveness)->fd(), POLLIN, 0};
        EXPECT_EQ(poll(&watched, 1, 30'000), 1);
        EXPECT_TRUE((*host_liveness)->Check(absl::Seconds(3)).ok());
      }
      ASSERT_TRUE(group.exchange().AllGather("", kLong).ok());
    }
    if (rank == 0) {
      fake_ms = now_ms;
      lost = std::string((*host_liveness)->Check(absl::Seconds(3)).message());
    }
    EXPECT_TRUE(group.exchange().AllGather("", kLong).ok());  // the other ranks stay until then
  });
  return lost;
}

TEST(MultiHostGroup, ASilentRankIsToldFromASilentHost) {
  const std::string host = LossAfter({{1, 1000}, {2, 1100}}, 4050);
  EXPECT_THAT(host, HasSubstr("rank 1 (host host1, pid "));
  EXPECT_THAT(host, HasSubstr("as all ranks of its host"));
  const std::string rank = LossAfter({{2, 1000}, {1, 1000}, {1, 2700}}, 4050);
  EXPECT_THAT(rank, HasSubstr("rank 2 (host host1, pid "));
  EXPECT_THAT(rank, HasSubstr("others of its host"));
}

TEST(MultiHostGroup, EachSilentRankOfAHostIsToldWithItsOwnTime) {
  const std::string lost = LossAfter({{2, 1000}, {1, 2100}}, 4200);
  EXPECT_THAT(lost, HasSubstr("rank 1 (host host1, pid "));
  EXPECT_THAT(lost, HasSubstr(" was silent for 2.1 s and rank 2 for 3.2 s, as all ranks"));
}

TEST(MultiHostGroup, ANodeThatEndsIsALossUnlessItSaidSo) {
  for (const bool in_order : {true, false}) {
    std::vector<std::unique_ptr<Group>> groups = NewLocalNodes({0, 1});
    GroupLiveness& liveness = groups[0]->liveness();
    groups[1]->liveness().Beat();
    if (in_order) groups[1]->liveness().Ending();
    groups[1].reset();
    pollfd watched = {liveness.fd(), POLLIN, 0};
    ASSERT_EQ(poll(&watched, 1, 30'000), 1);
    const absl::Status lost =
        in_order ? liveness.Check(absl::Minutes(1)) : AwaitLoss(liveness, absl::Minutes(1));
    EXPECT_EQ(lost.ok(), in_order) << lost;
    if (!in_order) {
      EXPECT_THAT(std::string(lost.message()), HasSubstr(" ended"));
    }
  }
}

}  // namespace
}  // namespace bulkhead
