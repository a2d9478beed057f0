// How often the kernel has killed processes of a cgroup for memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bulkhead {

struct OomKills {
  std::string dir;            // of the cgroup; "" when none can be read
  std::string file;           // where its count is
  int64_t count = 0;          // when this was read
  bool all_together = false;  // v2: memory.oom.group of it or an ancestor: all its processes die
};

// Those of the cgroup that process `pid` runs in. It can be read again when that process has ended,
// for as long as the cgroup is there. `root` is put before /proc and /sys.
OomKills ReadOomKills(int64_t pid, const std::string& root = "");

// How many have been added since; none when it cannot be read (any more).
std::optional<int64_t> OomKillsSince(const OomKills& before);

// "the kernel killed 2 processes of its cgroup for memory (oom_kill 5 in DIR)"; empty when none
// have been added, or it cannot be read.
std::string OomKillsText(const OomKills& before);

}  // namespace bulkhead
