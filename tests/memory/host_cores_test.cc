#include "memory/host_cores.h"

#include <gmock/gmock.h>

#include "tests/memory/host_tree.h"

namespace bulkhead {
namespace {

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

TEST_F(HostCoresTest, OfThisMachineAreKnown) { EXPECT_THAT(AllowedCores().size(), Ge(1U)); }

}  // namespace
}  // namespace bulkhead
