#include "memory/host_memory.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/memory/host_tree.h"

namespace bulkhead {
namespace {

class HostMemoryTest : public HostTree {
 protected:
  void SetUp() override {
    HostTree::SetUp();
    Write("/proc/meminfo", "MemTotal: 2000000 kB\nMemAvailable:    1000000 kB\n");
  }
  int64_t Available() { return ProbeHostMemory(root_).value().available_bytes; }
  int64_t Total() { return ProbeHostMemory(root_).value().total_bytes; }
};

TEST_F(HostMemoryTest, WithoutCgroupsItIsMemAvailable) {
  EXPECT_EQ(Available(), 1024000000);
  EXPECT_EQ(Total(), 2048000000);
}

TEST_F(HostMemoryTest, TheTightestAncestorOfACgroupV2Counts) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "5\n");
  Write("/sys/fs/cgroup/a/memory.max", "500000\n");
  Write("/sys/fs/cgroup/a/memory.current", "300000\n");
  Write("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 90000\nactive_file 10000\n");
  EXPECT_EQ(Available(), 300000);  // reclaimable page cache counts as free
  EXPECT_EQ(Total(), 500000);
}

TEST_F(HostMemoryTest, MemoryHighLimitsAsMemoryMaxDoesAndTheLowerOneIsNamed) {
  Write("/proc/self/cgroup", "0::/a\n");
  const std::string cgroup = "the cgroup " + root_ + "/sys/fs/cgroup/a (";
  Write("/sys/fs/cgroup/a/memory.current", "300000\n");
  Write("/sys/fs/cgroup/a/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/memory.high", "400000\n");
  HostLimit limit = TightestCgroup(root_).value();
  EXPECT_EQ(limit.total_bytes, 400000);
  EXPECT_EQ(limit.available_bytes, 100000);
  EXPECT_EQ(limit.name, cgroup + "memory.high)");
  Write("/sys/fs/cgroup/a/memory.max", "500000\n");
  EXPECT_EQ(TightestCgroup(root_)->total_bytes, 400000);
  Write("/sys/fs/cgroup/a/memory.max", "350000\n");
  limit = TightestCgroup(root_).value();
  EXPECT_EQ(limit.total_bytes, 350000);
  EXPECT_EQ(limit.name, cgroup + "memory.max)");
  Write("/sys/fs/cgroup/a/memory.high", "max\n");
  EXPECT_EQ(TightestCgroup(root_)->total_bytes, 350000);
}

TEST_F(HostMemoryTest, TheMemoryControllerOfACgroupV1Counts) {
  Write("/proc/self/cgroup", "3:cpu,cpuacct:/x\n4:memory:/job\n");
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "70000\n");
  Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "60000\n");
  Write("/sys/fs/cgroup/memory/job/memory.stat",
        "inactive_file 7\ntotal_inactive_file 1500\ntotal_active_file 500\n");
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

TEST_F(HostMemoryTest, OnlyTheNumaNodesThatWeMayUseCount) {
  Write("/sys/devices/system/node/has_memory", "0-1\n");
  Write("/sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal: 1200000 kB\nNode 0 MemFree: 100000 kB\n"
        "Node 0 Inactive(file): 50000 kB\n");
  Write("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 800000 kB\n");
  Write("/proc/self/status", "Name: x\nMems_allowed_list:\t0\n");
  EXPECT_EQ(Available(), 150000 * 1024);
  EXPECT_EQ(Total(), 1200000 * 1024);
  Write("/proc/self/status", "Mems_allowed_list:\t0-1\n");  // not bound
  EXPECT_EQ(Available(), 1024000000);
  for (const char* text : {"", "x", "1-0", "0-99999999999", "-1", "0,,1"}) {
    Write("/sys/devices/system/node/has_memory", text);
    EXPECT_EQ(Available(), 1024000000) << text;
  }
}

TEST_F(HostMemoryTest, FilesThatWereReadTwiceLeaveANodeAsMuchAsFilesThatWereReadOnce) {
  Write("/sys/devices/system/node/has_memory", "0-1\n");
  Write("/proc/self/status", "Mems_allowed_list:\t0\n");
  const auto available = [&](const std::string& files) {
    Write("/sys/devices/system/node/node0/meminfo",
          "Node 0 MemTotal: 1200000 kB\nNode 0 MemFree: 100000 kB\n" + files);
    return Available();
  };
  EXPECT_EQ(available("Node 0 Inactive(file): 50000 kB\n"), 150000 * 1024);
  EXPECT_EQ(available("Node 0 Active(file): 30000 kB\nNode 0 Inactive(file): 20000 kB\n"),
            150000 * 1024);
  // The kernel keeps the watermarks of its zones, and at most half of the files for them.
  Write("/proc/zoneinfo",
        "Node 0, zone DMA\n  pages free 9\n  low 13\n  high 16\n  pagesets\n    high: 9\n"
        "Node 0, zone Normal\n  nr_free_pages 7\n  low 100\n  high 200\n"
        "Node 1, zone Normal\n  low 5000\n  high 6000\n");
  EXPECT_EQ(available("Node 0 Active(file): 50000 kB\n"),
            150000 * 1024 - (113 + 216) * sysconf(_SC_PAGESIZE));
  EXPECT_EQ(available("Node 0 Active(file): 2 kB\n"), 100001 * 1024 - 216 * sysconf(_SC_PAGESIZE));
}

TEST_F(HostMemoryTest, EveryLimitIsNamedAndCgroupsThatLimitNothingAreNot) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "400000\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "500000\n");
  Write("/sys/fs/cgroup/a/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/memory.current", "300000\n");
  Write("/sys/fs/cgroup/a/b/memory.stat", "inactive_file 1000\nactive_file 900000\n");
  Write("/sys/fs/cgroup/memory.max", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory.current", "300000\n");
  const auto limits = ProbeHostLimits(root_).value();
  ASSERT_EQ(limits.size(), 2U);
  EXPECT_EQ(limits[0].total_bytes, 2048000000);
  EXPECT_FALSE(limits[0].cgroup);
  EXPECT_TRUE(limits[1].cgroup);
  EXPECT_EQ(limits[1].name, "the cgroup " + root_ + "/sys/fs/cgroup/a/b (memory.max)");
  EXPECT_EQ(limits[1].total_bytes, 400000);
  EXPECT_EQ(limits[1].available_bytes, 400000);  // not more than in all
}

TEST_F(HostMemoryTest, TwoProcessesOfOneCgroupHaveOneLimitAndOthersHaveTheirOwn) {
  for (const char* name : {"a", "b"}) {
    Write(absl::StrCat("/sys/fs/cgroup/", name, "/memory.max"), "500000\n");
    Write(absl::StrCat("/sys/fs/cgroup/", name, "/memory.current"), "300000\n");
  }
  const auto id_in = [&](const char* cgroup) {
    Write("/proc/self/cgroup", absl::StrCat("0::", cgroup, "\n"));
    return ProbeHostLimits(root_).value().back().id;
  };
  const std::string in_a = id_in("/a");
  EXPECT_EQ(id_in("/a/"), in_a);
  EXPECT_NE(id_in("/b"), in_a);
}

TEST_F(HostMemoryTest, TheCgroupWithTheLeastLeftIsTheTightest) {
  EXPECT_FALSE(TightestCgroup(root_).has_value());
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "400000\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "100000\n");
  Write("/sys/fs/cgroup/a/memory.max", "500000\n");
  Write("/sys/fs/cgroup/a/memory.current", "490000\n");
  const auto tightest = TightestCgroup(root_);
  ASSERT_TRUE(tightest.has_value());
  EXPECT_EQ(tightest->total_bytes, 500000);
  EXPECT_EQ(tightest->available_bytes, 10000);
}

TEST(HostMemory, OfThisMachineIsKnown) {
  const auto memory = ProbeHostMemory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_GT(memory->available_bytes, 0);
  EXPECT_LE(memory->available_bytes, memory->total_bytes);
  EXPECT_GT(ResidentBytes(), ResidentAnonymousBytes());
  EXPECT_GT(ResidentAnonymousBytes(), 0);
}

TEST(HostMemory, AbsentMeminfoIsAnError) {
  EXPECT_EQ(ProbeHostMemory("/nonexistent").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace bulkhead
