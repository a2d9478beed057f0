#include "memory/oom_kills.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/cgroup.h"

namespace bulkhead {
namespace {

// The value of "oom_kill" in a file of "key value" lines.
std::optional<int64_t> ReadCount(const std::string& path) {
  std::ifstream file(path);
  std::string key;
  int64_t value = 0;
  while (file >> key >> value) {
    if (key == "oom_kill") return value;
  }
  return std::nullopt;
}

}  // namespace

// Counted by the victim's innermost cgroup, whichever limit was exceeded.
OomKills ReadOomKills(int64_t pid, const std::string& root) {
  OomKills kills;
  for (const CgroupDir& dir : CgroupDirs("memory", root, absl::StrCat(pid))) {
    const std::string file = dir.path + (dir.v2 ? "memory.events" : "memory.oom_control");
    const std::optional<int64_t> count = ReadCount(file);
    if (!count.has_value()) continue;
    if (kills.file.empty()) {
      kills.dir = dir.path;
      kills.file = file;
      kills.count = *count;
    }
    if (dir.v2 && ReadNumber(dir.path + "memory.oom.group") == 1) kills.all_together = true;
  }
  return kills;
}

std::optional<int64_t> OomKillsSince(const OomKills& before) {
  const std::optional<int64_t> count = ReadCount(before.file);
  if (!count.has_value()) return std::nullopt;
  return *count - before.count;
}

std::string OomKillsText(const OomKills& before) {
  const int64_t kills = OomKillsSince(before).value_or(0);
  if (kills <= 0) return "";
  return absl::StrCat("the kernel killed ", kills, kills == 1 ? " process" : " processes",
                      " of its cgroup for memory (oom_kill ", before.count + kills, " in ",
                      before.dir, ")");
}

}  // namespace bulkhead
