#include "memory/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "memory/cgroup.h"

namespace bulkhead {
namespace {

// The value behind `key` in a file of "key value" lines, each of which begins with `prefix`.
std::optional<int64_t> ReadField(const std::string& path, const std::string& key,
                                 const std::string& prefix = "") {
  std::ifstream file(path);
  std::string name;
  std::string value;
  std::string line;
  while (std::getline(file, line)) {
    if (!absl::StartsWith(line, prefix)) continue;
    std::istringstream words(line.substr(prefix.size()));
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

// Takes the lesser of both numbers.
void Tighten(HostMemory& memory, int64_t total_bytes, int64_t available_bytes) {
  memory.total_bytes = std::min(memory.total_bytes, total_bytes);
  memory.available_bytes = std::min(memory.available_bytes, std::max<int64_t>(0, available_bytes));
}

void TightenByCgroup(HostMemory& memory, const CgroupDir& dir) {
  const CgroupFiles& files = dir.v2 ? kV2 : kV1;
  const auto limit = ReadNumber(dir.path + files.limit);
  const auto usage = ReadNumber(dir.path + files.usage);
  if (!limit.has_value() || !usage.has_value()) return;
  const int64_t inactive = ReadField(dir.path + "memory.stat", files.inactive).value_or(0);
  Tighten(memory, *limit, *limit - std::max<int64_t>(0, *usage - inactive));
}

// "0-3,8" as numbers; empty when it is no such list.
std::vector<int> ParseNodeList(const std::string& text) {
  constexpr int kMaxNodes = 1024;
  std::vector<int> nodes;
  for (const absl::string_view range : absl::StrSplit(absl::StripAsciiWhitespace(text), ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first || last >= kMaxNodes) {
      return {};
    }
    for (int node = first; node <= last; ++node) nodes.push_back(node);
  }
  return nodes;
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Where we may use some of the host's NUMA nodes only: what those have.
void TightenByNodes(HostMemory& memory, const std::string& root) {
  std::string allowed_text;
  std::ifstream status(root + "/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (absl::StartsWith(line, "Mems_allowed_list:")) allowed_text = line.substr(18);
  }
  const std::string sys = root + "/sys/devices/system/node";
  const std::vector<int> allowed = ParseNodeList(allowed_text);
  const std::vector<int> present = ParseNodeList(FirstLine(sys + "/has_memory"));
  int64_t total_kib = 0;
  int64_t free_kib = 0;
  bool all = true;
  for (const int node : present) {
    if (std::find(allowed.begin(), allowed.end(), node) == allowed.end()) {
      all = false;
      continue;
    }
    // Lines such as "Node 0 MemFree:  123 kB".
    const std::string path = absl::StrCat(sys, "/node", node, "/meminfo");
    const std::string prefix = absl::StrCat("Node ", node, " ");
    total_kib += ReadField(path, "MemTotal:", prefix).value_or(0);
    free_kib += ReadField(path, "MemFree:", prefix).value_or(0) +
                ReadField(path, "Inactive(file):", prefix).value_or(0);
  }
  if (!all && total_kib > 0) Tighten(memory, total_kib * 1024, free_kib * 1024);
}

}  // namespace

absl::StatusOr<HostMemory> ProbeHostMemory(const std::string& root) {
  const auto total_kib = ReadField(root + "/proc/meminfo", "MemTotal:");
  const auto available_kib = ReadField(root + "/proc/meminfo", "MemAvailable:");
  if (!total_kib.has_value() || !available_kib.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("no MemTotal and MemAvailable in ", root, "/proc/meminfo"));
  }
  HostMemory memory{*total_kib * 1024, *available_kib * 1024};
  for (const CgroupDir& dir : CgroupDirs("memory", root)) TightenByCgroup(memory, dir);
  TightenByNodes(memory, root);
  memory.available_bytes = std::min(memory.available_bytes, memory.total_bytes);
  return memory;
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  if (!(statm >> total_pages >> resident_pages)) return 0;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

}  // namespace bulkhead
