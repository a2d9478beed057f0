// Counts OOM kills in a cgroup.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bulkhead {

struct OomKills {
  std::string dir;            // folder of the cgroup; "" if unreadable
  std::string file;           // holds the counter
  int64_t count = 0;          // counter when read
  bool all_together = false;  // v2: memory.oom.group is set on it or an ancestor: all its processes
                              // are killed
};

// For the cgroup of process `pid`. Still readable after that process has ended, as long as the
// cgroup exists. `root` is a prefix of /proc and /sys.
OomKills ReadOomKills(int64_t pid, const std::string& root = "");

// Kills since `before`; none if the counter can no longer be read.
std::optional<int64_t> OomKillsSince(const OomKills& before);

// "the kernel killed 2 processes of its cgroup for memory (oom_kill 5 in DIR)"; empty if there were
// none or the counter cannot be read.
std::string OomKillsText(const OomKills& before);

}  // namespace bulkhead
