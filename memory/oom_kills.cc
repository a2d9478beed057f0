#include "memory/oom_kills.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "memory/cgroup.h"

namespace bulkhead {
namespace {

// The number behind "oom_kill" in a file of "key value" lines.
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

// The innermost one counts: that of the victim, whichever limit it met.
OomKills ReadOomKills(int64_t pid, const std::string& root) {
  for (const CgroupDir& dir : CgroupDirs("memory", root, absl::StrCat(pid))) {
    OomKills kills{dir.path, dir.path + (dir.v2 ? "memory.events" : "memory.oom_control"), 0};
    const std::optional<int64_t> count = ReadCount(kills.file);
    if (!count.has_value()) continue;
    kills.count = *count;
    return kills;
  }
  return {};
}

std::optional<int64_t> OomKillsSince(const OomKills& before) {
  const std::optional<int64_t> count = ReadCount(before.file);
  if (!count.has_value()) return std::nullopt;
  return *count - before.count;
}

}  // namespace bulkhead
