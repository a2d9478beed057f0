#include "memory/host_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "memory/cgroup.h"

namespace bulkhead {
namespace {

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

// What this cgroup still allows; none when it sets no limit.
std::optional<int64_t> Headroom(const CgroupDir& dir) {
  const CgroupFiles& files = dir.v2 ? kV2 : kV1;
  const auto limit = ReadNumber(dir.path + files.limit);
  const auto usage = ReadNumber(dir.path + files.usage);
  if (!limit.has_value() || !usage.has_value()) return std::nullopt;
  const int64_t inactive = ReadField(dir.path + "memory.stat", files.inactive).value_or(0);
  const int64_t used = std::max<int64_t>(0, *usage - inactive);
  return std::max<int64_t>(0, *limit - used);
}

}  // namespace

absl::StatusOr<int64_t> AvailableHostBytes(const std::string& root) {
  const auto available_kib = ReadField(root + "/proc/meminfo", "MemAvailable:");
  if (!available_kib.has_value()) {
    return absl::NotFoundError(absl::StrCat("no MemAvailable in ", root, "/proc/meminfo"));
  }
  int64_t least = *available_kib * 1024;
  for (const CgroupDir& dir : CgroupDirs("memory", root)) {
    least = std::min(least, Headroom(dir).value_or(least));
  }
  return least;
}

}  // namespace bulkhead
