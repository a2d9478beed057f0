#include "memory/numa.h"

#include <gmock/gmock.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/host_cores.h"
#include "memory/host_memory.h"
#include "tests/memory/host_tree.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<NumaNode> kTwo = {{0, {0, 1, 2, 3}}, {1, {4, 5, 6, 7}}};
const std::vector<int> kAll = {0, 1, 2, 3, 4, 5, 6, 7};

NumaPlan Place(const std::vector<NumaNode>& nodes, const std::vector<std::vector<int>>& ranks,
               const NumaOption& option = {}) {
  return PlaceRanks(nodes, ranks, option).value();
}

TEST(PlaceRanks, GivesEachRankANodeOfItsOwn) {
  const NumaPlan plan = Place(kTwo, {kAll, kAll});
  EXPECT_THAT(plan.ranks[0].nodes, ElementsAre(0));
  EXPECT_THAT(plan.ranks[0].cores, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(plan.ranks[1].nodes, ElementsAre(1));
  EXPECT_THAT(plan.ranks[1].cores, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(plan.warning, "");
}

TEST(PlaceRanks, LetsRanksShareANodeInOrder) {
  const NumaPlan plan = Place(kTwo, {kAll, kAll, kAll, kAll});
  EXPECT_THAT(plan.ranks[1].nodes, ElementsAre(0));
  EXPECT_THAT(plan.ranks[2].nodes, ElementsAre(1));
  EXPECT_THAT(plan.ranks[2].cores, ElementsAre(4, 5, 6, 7));
}

TEST(PlaceRanks, GivesARankSeveralNodesWhereThereAreMoreOfThem) {
  const std::vector<NumaNode> four = {{0, {0, 1}}, {1, {2, 3}}, {2, {4, 5}}, {3, {6, 7}}};
  const NumaPlan plan = Place(four, {kAll, kAll});
  EXPECT_THAT(plan.ranks[1].nodes, ElementsAre(2, 3));
  EXPECT_THAT(plan.ranks[1].cores, ElementsAre(4, 5, 6, 7));
  const NumaPlan alone = Place(four, {kAll});
  EXPECT_THAT(alone.ranks[0].nodes, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(alone.warning, "");
}

TEST(PlaceRanks, SpreadsRanksThatDoNotDivideTheNodesAndSaysWhatWould) {
  const NumaPlan plan = Place(kTwo, {kAll, kAll, kAll});
  for (const NumaPlacement& rank : plan.ranks) {
    EXPECT_THAT(rank.nodes, ElementsAre(0, 1));
    EXPECT_EQ(rank.cores, kAll);
  }
  EXPECT_THAT(plan.warning, HasSubstr("3 ranks do not divide 2 NUMA nodes: start 2"));
}

TEST(PlaceRanks, DoesNotMakeAStragglerOfTheRankWithFewCores) {
  const std::vector<int> some = {0, 1, 2, 3, 4};  // as a batch system may give them
  const NumaPlan plan = Place(kTwo, {some, some});
  EXPECT_EQ(plan.ranks[0].cores, some);
  EXPECT_EQ(plan.ranks[1].cores, some);
  EXPECT_THAT(plan.warning, HasSubstr("node 1 has 1 cores and node 0 has 4"));
}

TEST(PlaceRanks, KeepsTheCoresThatALauncherGaveAndTakesTheMemoryBesideThem) {
  const NumaPlan plan = Place(kTwo, {{4, 5}, {0, 1, 6}});
  EXPECT_THAT(plan.ranks[0].nodes, ElementsAre(1));
  EXPECT_THAT(plan.ranks[0].cores, ElementsAre(4, 5));
  EXPECT_THAT(plan.ranks[1].nodes, ElementsAre(0, 1));
  EXPECT_EQ(Place(kTwo, {{4, 5}}).ranks[0].nodes, std::vector<int>{1});
}

TEST(PlaceRanks, PlacesNothingWhereThereIsNoChoice) {
  EXPECT_THAT(Place({{0, kAll}}, {kAll, kAll}).ranks[0].nodes, IsEmpty());
  EXPECT_THAT(Place({}, {kAll}).ranks[0].nodes, IsEmpty());
  EXPECT_THAT(Place({{0, kAll}, {1, {}}}, {kAll}).ranks[0].nodes, IsEmpty());  // memory alone
  EXPECT_THAT(Place(kTwo, {kAll, kAll}, {true, {}}).ranks[1].nodes, IsEmpty());
  EXPECT_EQ(Place(kTwo, {kAll, kAll}, {true, {}}).ranks[1].cores, kAll);
  // Cores 6 and 7 are of a node without memory.
  const NumaPlan some = Place({{0, {0, 1, 2}}, {1, {3, 4, 5}}}, {{0, 1}, kAll});
  EXPECT_THAT(some.ranks[0].nodes, IsEmpty());
  EXPECT_EQ(some.ranks[1].cores, kAll);
}

TEST(PlaceRanks, TakesListedNodesAlone) {
  const NumaPlan one = Place(kTwo, {kAll, kAll}, {false, {1}});
  EXPECT_THAT(one.ranks[0].nodes, ElementsAre(1));
  EXPECT_THAT(one.ranks[1].cores, ElementsAre(4, 5, 6, 7));
  const NumaPlan turned = Place(kTwo, {kAll, kAll}, {false, {1, 0}});
  EXPECT_THAT(turned.ranks[0].nodes, ElementsAre(1));
  EXPECT_THAT(turned.ranks[1].nodes, ElementsAre(0));
}

TEST(PlaceRanks, RefusesNodesThatItCannotTake) {
  const auto why = [](const std::vector<std::vector<int>>& ranks, const NumaOption& option) {
    return std::string(PlaceRanks(kTwo, ranks, option).status().message());
  };
  EXPECT_THAT(why({kAll}, {false, {2}}), HasSubstr("2 is not a NUMA node with memory"));
  EXPECT_THAT(why({kAll}, {false, {2}}), HasSubstr("it has nodes 0-1"));
  EXPECT_THAT(why({{0, 1}}, {false, {0, 1}}), HasSubstr("may use a core of NUMA node 1; leave"));
  EXPECT_THAT(why({{0, 1}}, {false, {1}}), HasSubstr("may use the cores 0-1 and none of"));
}

class NumaTest : public HostTree {};

TEST_F(NumaTest, NodesWithMemoryAreFoundWithTheirCores) {
  EXPECT_THAT(ProbeNumaNodes(root_), IsEmpty());
  Write("/proc/self/status", "Name: x\nMems_allowed_list:\t0-2\n");
  Write("/sys/devices/system/node/has_memory", "0,2-3\n");
  Write("/sys/devices/system/node/node0/cpulist", "0-1,4\n");
  Write("/sys/devices/system/node/node2/cpulist", "\n");  // memory alone
  const std::vector<NumaNode> nodes = ProbeNumaNodes(root_);
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_THAT(nodes[0].cores, ElementsAre(0, 1, 4));
  EXPECT_EQ(nodes[1].id, 2);
  EXPECT_THAT(nodes[1].cores, IsEmpty());
}

TEST_F(NumaTest, TheBudgetOfARankIsItsNodes) {
  Write("/proc/meminfo", "MemTotal: 2000000 kB\nMemAvailable: 1000000 kB\n");
  Write("/proc/self/status", "Mems_allowed_list:\t0-1\n");
  Write("/sys/devices/system/node/has_memory", "0-1\n");
  Write("/sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal: 900000 kB\nNode 1 MemFree: 100000 kB\n");
  const auto limits = ProbeHostLimits(root_, {1}).value();
  ASSERT_EQ(limits.size(), 2U);
  EXPECT_EQ(limits[1].name, "NUMA node 1");
  EXPECT_EQ(limits[1].available_bytes, 100000 * 1024);
  EXPECT_EQ(ProbeHostLimits(root_, {0, 1}).value().size(), 1U);
}

// Another thread, since a policy stays with the thread.
TEST_F(NumaTest, TheBudgetUnderAPolicyIsTheNodesThatItBindsTo) {
  Write("/proc/meminfo", "MemTotal: 2000000 kB\nMemAvailable: 1000000 kB\n");
  Write("/sys/devices/system/node/has_memory", "0-63\n");
  Write("/proc/self/status", "Mems_allowed_list:\t0-63\n");
  std::thread([this] {
    const std::vector<int> nodes = AllowedNumaNodes();
    if (nodes.empty() || nodes[0] > 63 || HasMemoryPolicy()) GTEST_SKIP() << "no NUMA, or numactl";
    Write(absl::StrCat("/sys/devices/system/node/node", nodes[0], "/meminfo"),
          absl::StrCat("Node ", nodes[0], " MemTotal: 900000 kB\n"));
    EXPECT_EQ(ProbeHostLimits(root_).value().size(), 1U);
    uint64_t mask = uint64_t{1} << nodes[0];
    for (const int flag : {0, MPOL_F_STATIC_NODES}) {
      // The kernel takes one bit less than it is told.
      if (syscall(SYS_set_mempolicy, MPOL_BIND | flag, &mask, 65) != 0)
        GTEST_SKIP() << "no permission";
      const auto limits = ProbeHostLimits(root_).value();
      ASSERT_EQ(limits.size(), 2U);
      EXPECT_EQ(limits[1].name, absl::StrCat("NUMA node ", nodes[0]));
      EXPECT_EQ(limits[1].total_bytes, 900000 * 1024);
    }
    Write("/proc/self/status", "Mems_allowed_list:\t63\n");
    EXPECT_THAT(MemoryNodes(root_), ElementsAre(63));  // none of the policy's is allowed
    Write("/proc/self/status", "Mems_allowed_list:\t0-63\n");
    ASSERT_EQ(syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, 65), 0);
    EXPECT_EQ(ProbeHostLimits(root_).value().size(), 1U);  // others serve when the node is full
  }).join();
}

TEST(NumaBytes, AreCountedInPagesOfTheirSize) {
  const NumaBytes bytes = CountNumaBytes(
      "55a000 prefer:1 file=/usr/bin/x mapped=10 N0=10 kernelpagesize_kB=4\n"
      "7f0000 prefer:1 anon=600 dirty=600 active=0 N0=100 N1=500 kernelpagesize_kB=4\n"
      "7f9000 prefer:1 anon=3 dirty=3 N10=3 kernelpagesize_kB=2048\n"
      "bad N1=x anon=\n",
      {1});
  EXPECT_EQ(bytes.on_nodes, 500 * 4096);
  EXPECT_EQ(bytes.elsewhere, 100 * 4096 + 3 * (2 << 20));
}

// Another thread, since a policy stays with the thread.
TEST(NumaBytes, MemoryOfThisMachineGoesWhereItIsTold) {
  std::thread([] {
    const std::vector<int> nodes = AllowedNumaNodes();
    if (nodes.empty() || HasMemoryPolicy()) GTEST_SKIP() << "a kernel without NUMA, or numactl";
    const std::vector<int> last = {nodes.back()};
    const absl::Status placed = UseMemoryOf(last);
    if (!placed.ok()) GTEST_SKIP() << placed;
    EXPECT_TRUE(HasMemoryPolicy());
    constexpr size_t kBytes = size_t{64} << 20;
    const NumaBytes before = MeasureNumaBytes(last);
    void* const data =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(data, MAP_FAILED);
    std::memset(data, 1, kBytes);
    const NumaBytes after = MeasureNumaBytes(last);
    munmap(data, kBytes);
    EXPECT_GE(after.on_nodes - before.on_nodes, static_cast<int64_t>(kBytes * 9 / 10));
  }).join();
}

TEST(NumaBytes, ANodeThatDoesNotExistIsRefused) {
  std::thread([] {
    const absl::Status placed = UseMemoryOf({1023});
    EXPECT_EQ(placed.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(placed.message()), HasSubstr("NUMA nodes 1023"));
  }).join();
}

}  // namespace
}  // namespace bulkhead
