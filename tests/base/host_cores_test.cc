#include "base/host_cores.h"

#include <gmock/gmock.h>

#include "tests/memory/host_tree.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::Ge;
using testing::Optional;

class HostCoresTest : public HostTree {};

TEST_F(HostCoresTest, WithoutALimitThereIsNoQuota) {
  EXPECT_EQ(CoreQuota(root_), std::nullopt);
  Write("/proc/self/cgroup", "0::/a\n3:cpu,cpuacct:/a\n");
  Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CoreQuota(root_), std::nullopt);
}

TEST_F(HostCoresTest, CoresNearADeviceAreThoseOfItsNodeThatWeMayUse) {
  const std::vector<int> allowed = AllowedCores();
  const auto near = [&] { return AllowedCoresNear("0000:C1:00.0", root_); };
  EXPECT_EQ(near(), allowed);  // unknown node
  const std::string path = "/sys/bus/pci/devices/0000:c1:00.0/local_cpulist";
  Write(path, std::to_string(allowed.back()) + ",9000-9100\n");
  EXPECT_EQ(near(), std::vector<int>{allowed.back()});
  Write(path, "0-8191\n");
  EXPECT_EQ(near(), allowed);
  for (const char* text : {"\n", "9000-9100\n", "a-b\n", "0-\n,", "-1\n"}) {
    Write(path, text);
    EXPECT_EQ(near().empty(), false) << text;
  }
  Write(path, "9000-9100\n");
  EXPECT_EQ(near(), allowed);  // none of them is allowed
}

TEST_F(HostCoresTest, TheTightestAncestorCounts) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
  Write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_THAT(CoreQuota(root_), Optional(1.5));
}

TEST_F(HostCoresTest, TheCpuControllerOfACgroupV1Counts) {
  Write("/proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");  // as a container sees it
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_THAT(CoreQuota(root_), Optional(2.0));
}

TEST_F(HostCoresTest, HostileTextIsIgnored) {
  Write("/proc/self/cgroup", "0::/a\n");
  for (const char* text : {"", "x y", "0 100000", "-5 100000", "100000 0", "100000"}) {
    Write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(CoreQuota(root_), std::nullopt) << text;
  }
}

TEST_F(HostCoresTest, AreListedAsTheKernelDoes) {
  EXPECT_EQ(CoreListText({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(CoreListText({5}), "5");
  EXPECT_EQ(CoreListText({}), "");
}

TEST_F(HostCoresTest, OfOnePhysicalCoreCountOnce) {
  EXPECT_THAT(OnePerPhysicalCore({0, 1, 4}, root_), ElementsAre(0, 1, 4));  // unknown
  for (const char* const core : {"0", "4"}) {
    Write(std::string("/sys/devices/system/cpu/cpu") + core + "/topology/thread_siblings_list",
          "0,4\n");
  }
  EXPECT_THAT(OnePerPhysicalCore({0, 1, 4}, root_), ElementsAre(0, 1));
  EXPECT_THAT(OnePerPhysicalCore({1, 4}, root_), ElementsAre(1, 4));
}

TEST_F(HostCoresTest, BelongToNumaNodes) {
  EXPECT_THAT(NumaNodesOf({0, 9}, root_), ElementsAre());
  Write("/sys/devices/system/node/online", "0-2\n");
  Write("/sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
  Write("/sys/devices/system/node/node1/cpulist", "4-7,12-15\n");
  Write("/sys/devices/system/node/node2/cpulist", "\n");  // a node without CPUs
  EXPECT_THAT(NumaNodesOf({0, 9}, root_), ElementsAre(0));
  EXPECT_THAT(NumaNodesOf({3, 4}, root_), ElementsAre(0, 1));
  EXPECT_THAT(NumaNodesOf({12}, root_), ElementsAre(1));
  Write("/sys/devices/system/node/online", "x-y\n");
  EXPECT_THAT(NumaNodesOf({0}, root_), ElementsAre());
}

TEST_F(HostCoresTest, OfThisMachineAreKnown) { EXPECT_THAT(AllowedCores().size(), Ge(1U)); }

}  // namespace
}  // namespace bulkhead
