#include "memory/oom_kills.h"

#include <gtest/gtest.h>

#include "tests/memory/host_tree.h"

namespace bulkhead {
namespace {

class OomKillsTest : public HostTree {};

TEST_F(OomKillsTest, AreCountedInTheCgroupOfTheProcessV2) {
  Write("/proc/7/cgroup", "0::/job/rank\n");
  Write("/sys/fs/cgroup/job/rank/memory.events", "low 0\nmax 9\noom 1\noom_kill 3\n");
  Write("/sys/fs/cgroup/job/memory.events", "oom_kill 100\n");
  const OomKills before = ReadOomKills(7, root_);
  EXPECT_EQ(before.count, 3);
  EXPECT_EQ(before.dir, root_ + "/sys/fs/cgroup/job/rank/");
  EXPECT_EQ(OomKillsSince(before), 0);
  Write("/sys/fs/cgroup/job/rank/memory.events", "oom_kill 4\n");
  EXPECT_EQ(OomKillsSince(before), 1);
}

TEST_F(OomKillsTest, AreCountedInTheCgroupOfTheProcessV1) {
  Write("/proc/7/cgroup", "9:memory:/job\n0::/unified\n");
  Write("/sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(ReadOomKills(7, root_).count, 2);
}

TEST_F(OomKillsTest, AreUnknownWhereTheCgroupCannotBeRead) {
  const OomKills none = ReadOomKills(7, root_);
  EXPECT_EQ(none.dir, "");
  EXPECT_FALSE(OomKillsSince(none).has_value());
}

TEST_F(OomKillsTest, AreToldInWordsOnceThereAreSome) {
  Write("/proc/7/cgroup", "0::/job\n");
  Write("/sys/fs/cgroup/job/memory.events", "oom_kill 3\n");
  const OomKills before = ReadOomKills(7, root_);
  EXPECT_EQ(OomKillsText(before), "");
  Write("/sys/fs/cgroup/job/memory.events", "oom_kill 5\n");
  EXPECT_EQ(OomKillsText(before),
            "the kernel killed 2 processes of its cgroup for memory (oom_kill 5 in " + root_ +
                "/sys/fs/cgroup/job/)");
}

TEST_F(OomKillsTest, TakeAllProcessesWhereACgroupOrItsAncestorSaysSo) {
  Write("/proc/7/cgroup", "0::/job/rank\n");
  Write("/sys/fs/cgroup/job/rank/memory.events", "oom_kill 0\n");
  Write("/sys/fs/cgroup/job/rank/memory.oom.group", "0\n");
  EXPECT_FALSE(ReadOomKills(7, root_).all_together);
  Write("/sys/fs/cgroup/job/memory.events", "oom_kill 0\n");
  Write("/sys/fs/cgroup/job/memory.oom.group", "1\n");
  EXPECT_TRUE(ReadOomKills(7, root_).all_together);
}

}  // namespace
}  // namespace bulkhead
