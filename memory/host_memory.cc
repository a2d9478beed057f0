#include "memory/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace bulkhead {
namespace {

// The number in a file that holds one; none for "max" or an unreadable file.
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  int64_t value = 0;
  if (!(file >> text) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

// The value behind `key` in a file of "key value" lines.
std::optional<int64_t> ReadField(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  std::string value;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    int64_t number = 0;
    if (words >> name >> value && name == key && absl::SimpleAtoi(value, &number)) return number;
  }
  return std::nullopt;
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive;
};
constexpr CgroupFiles kV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                             "total_inactive_file"};
constexpr CgroupFiles kV2 = {"memory.max", "memory.current", "inactive_file"};

// The least that the cgroup at mount + path and its ancestors still allow.
int64_t CgroupHeadroom(const std::string& mount, std::string path, const CgroupFiles& files) {
  int64_t least = std::numeric_limits<int64_t>::max();
  while (true) {
    const std::string dir = absl::StrCat(mount, path, "/");
    const auto limit = ReadNumber(dir + files.limit);
    const auto usage = ReadNumber(dir + files.usage);
    if (limit.has_value() && usage.has_value()) {
      const int64_t inactive = ReadField(dir + "memory.stat", files.inactive).value_or(0);
      const int64_t used = std::max<int64_t>(0, *usage - inactive);
      least = std::min(least, std::max<int64_t>(0, *limit - used));
    }
    if (path.empty() || path == "/") return least;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

absl::StatusOr<int64_t> AvailableHostBytes(const std::string& root) {
  const auto available_kib = ReadField(root + "/proc/meminfo", "MemAvailable:");
  if (!available_kib.has_value()) {
    return absl::NotFoundError(absl::StrCat("no MemAvailable in ", root, "/proc/meminfo"));
  }
  int64_t least = *available_kib * 1024;
  std::ifstream cgroups(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(cgroups, line)) {
    // hierarchy:controllers:path, with no controllers for v2
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || !absl::StartsWith(parts[2], "/")) continue;
    const std::string path(absl::StripSuffix(parts[2], "/"));
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) {
      least = std::min(least, CgroupHeadroom(root + "/sys/fs/cgroup", path, kV2));
    } else if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      least = std::min(least, CgroupHeadroom(root + "/sys/fs/cgroup/memory", path, kV1));
    }
  }
  return least;
}

}  // namespace bulkhead
