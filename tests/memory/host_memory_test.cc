#include "memory/host_memory.h"

#include "tests/memory/host_tree.h"

namespace bulkhead {
namespace {

class HostMemoryTest : public HostTree {
 protected:
  void SetUp() override {
    HostTree::SetUp();
    Write("/proc/meminfo", "MemTotal: 2000000 kB\nMemAvailable:    1000000 kB\n");
  }
  int64_t Available() { return AvailableHostBytes(root_).value(); }
};

TEST_F(HostMemoryTest, WithoutCgroupsItIsMemAvailable) { EXPECT_EQ(Available(), 1024000000); }

TEST_F(HostMemoryTest, TheTightestAncestorOfACgroupV2Counts) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "5\n");
  Write("/sys/fs/cgroup/a/memory.max", "500000\n");
  Write("/sys/fs/cgroup/a/memory.current", "300000\n");
  Write("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000\n");
  EXPECT_EQ(Available(), 300000);  // dropped page cache counts as free
}

TEST_F(HostMemoryTest, TheMemoryControllerOfACgroupV1Counts) {
  Write("/proc/self/cgroup", "3:cpu,cpuacct:/x\n4:memory:/job\n");
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "70000\n");
  Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "60000\n");
  Write("/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 7\ntotal_inactive_file 2000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "60000\n");
  EXPECT_EQ(Available(), 12000);
}

TEST_F(HostMemoryTest, ACgroupOverItsLimitLeavesNothing) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/memory.max", "10\n");
  Write("/sys/fs/cgroup/a/memory.current", "20\n");
  EXPECT_EQ(Available(), 0);
}

TEST_F(HostMemoryTest, HostileTextIsIgnored) {
  Write("/proc/self/cgroup", "\n:::\n0::\n0::relative\n4:memory\n0::/../..\n");
  EXPECT_EQ(Available(), 1024000000);
}

TEST(HostMemory, OfThisMachineIsKnown) {
  const auto available = AvailableHostBytes();
  ASSERT_TRUE(available.ok()) << available.status();
  EXPECT_GT(*available, 0);
}

TEST(HostMemory, AbsentMeminfoIsAnError) {
  EXPECT_EQ(AvailableHostBytes("/nonexistent").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace bulkhead
