#include "memory/host_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/cgroup.h"
#include "base/host_cores.h"
#include "base/status.h"
#include "memory/numa.h"

namespace bulkhead {
namespace {

// The value of `key` in a file of "key value" lines that each start with `prefix`.
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
  const char* stat_prefix;  // of memory.stat fields that include all descendants, as the limit does
};
constexpr CgroupFiles kV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"};
constexpr CgroupFiles kV2 = {"memory.max", "memory.current", ""};

// None for a cgroup without a limit. The id is the inode of its folder, equal by every path.
std::optional<HostLimit> LimitOf(const CgroupDir& dir, const std::string& boot_id) {
  const CgroupFiles& files = dir.v2 ? kV2 : kV1;
  auto limit = ReadNumber(dir.path + files.limit);
  const char* binding = files.limit;
  // Above memory.high the kernel does not kill, but throttles until nothing makes progress.
  const auto high = dir.v2 ? ReadNumber(dir.path + "memory.high") : std::nullopt;
  if (high.has_value() && *high < limit.value_or(std::numeric_limits<int64_t>::max())) {
    limit = high;
    binding = "memory.high";
  }
  const auto usage = ReadNumber(dir.path + files.usage);
  struct stat folder;
  if (!limit.has_value() || !usage.has_value() || stat(dir.path.c_str(), &folder) != 0) {
    return std::nullopt;
  }
  // The kernel reclaims page cache before the limit is reached. Pages read twice become active.
  int64_t cache = 0;
  for (const char* pages : {"inactive_file", "active_file"}) {
    cache += ReadField(dir.path + "memory.stat", pages, files.stat_prefix).value_or(0);
  }
  HostLimit found;
  found.id = absl::StrCat(boot_id, ":cgroup:", folder.st_dev, ":", folder.st_ino);
  found.name = absl::StrCat("the cgroup ", absl::StripSuffix(dir.path, "/"), " (", binding, ")");
  std::replace(found.name.begin(), found.name.end(), '\n', '?');
  found.total_bytes = *limit;
  found.available_bytes = *limit - std::max<int64_t>(0, *usage - cache);
  found.cgroup = true;
  return found;
}

// The sum of a watermark ("low", "high") over a node's zones.
int64_t WatermarkBytes(int node, const std::string& key, const std::string& root) {
  std::ifstream file(root + "/proc/zoneinfo");
  const std::string prefix = absl::StrCat("Node ", node, ",");
  bool is_of_node = false;
  int64_t pages = 0;
  for (std::string line; std::getline(file, line);) {
    // "Node 0, zone   Normal", and below it "        low      20163".
    if (absl::StartsWith(line, "Node ")) is_of_node = absl::StartsWith(line, prefix);
    std::istringstream words(line);
    std::string name;
    int64_t value = 0;
    if (is_of_node && words >> name >> value && name == key) pages += value;
  }
  return pages * sysconf(_SC_PAGESIZE);
}

// As MemAvailable for a host: free pages above the high watermark, plus file pages less the low
// watermark or half of them. Reclaimable slab, which it also counts, is left out.
int64_t AvailableBytesOfNode(int node, const std::string& root) {
  const std::string path = absl::StrCat(root, "/sys/devices/system/node/node", node, "/meminfo");
  // Lines such as "Node 0 MemFree:  123 kB".
  const auto bytes = [&](const char* key) {
    return ReadField(path, key, absl::StrCat("Node ", node, " ")).value_or(0) * 1024;
  };
  const int64_t cache = bytes("Active(file):") + bytes("Inactive(file):");
  return std::max<int64_t>(0, bytes("MemFree:") - WatermarkBytes(node, "high", root)) + cache -
         std::min(cache / 2, WatermarkBytes(node, "low", root));
}

// The limit of these NUMA nodes, if they are a proper subset of those with memory. `nodes` empty:
// the nodes that the process's memory comes from.
std::optional<HostLimit> LimitOfNodes(std::vector<int> nodes, const std::string& root,
                                      const std::string& boot_id) {
  const std::string sys = root + "/sys/devices/system/node";
  if (nodes.empty()) nodes = MemoryNodes(root);
  int64_t total_kib = 0;
  int64_t available_bytes = 0;
  bool all = true;
  for (const int node : ReadKernelList(sys + "/has_memory")) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) {
      all = false;
      continue;
    }
    total_kib += ReadField(absl::StrCat(sys, "/node", node, "/meminfo"),
                           "MemTotal:", absl::StrCat("Node ", node, " "))
                     .value_or(0);
    available_bytes += AvailableBytesOfNode(node, root);
  }
  if (all || total_kib == 0) return std::nullopt;
  const std::string text = CoreListText(nodes);
  return HostLimit{.id = absl::StrCat(boot_id, ":nodes:", text),
                   .name = absl::StrCat("NUMA node", nodes.size() == 1 ? " " : "s ", text),
                   .total_bytes = total_kib * 1024,
                   .available_bytes = available_bytes};
}

// The value of `key` in /proc/self/status (in kB), in bytes.
int64_t StatusBytes(const std::string& key) {
  return ReadField("/proc/self/status", key).value_or(0) * 1024;
}

}  // namespace

std::string BootId(const std::string& root) {
  std::ifstream file(root + "/proc/sys/kernel/random/boot_id");
  std::string id;
  return file >> id ? id : "boot";
}

absl::StatusOr<std::vector<HostLimit>> ProbeHostLimits(const std::string& root,
                                                       const std::vector<int>& numa_nodes) {
  const auto total_kib = ReadField(root + "/proc/meminfo", "MemTotal:");
  const auto available_kib = ReadField(root + "/proc/meminfo", "MemAvailable:");
  if (!total_kib.has_value() || !available_kib.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("no MemTotal and MemAvailable in ", root, "/proc/meminfo"));
  }
  const std::string boot_id = BootId(root);
  std::vector<HostLimit> limits = {{.id = boot_id,
                                    .name = "the host",
                                    .total_bytes = *total_kib * 1024,
                                    .available_bytes = *available_kib * 1024}};
  if (auto nodes = LimitOfNodes(numa_nodes, root, boot_id)) limits.push_back(*std::move(nodes));
  for (const CgroupDir& dir : CgroupDirs("memory", root)) {
    auto cgroup = LimitOf(dir, boot_id);
    // A limit above the host's memory is no limit.
    if (cgroup && cgroup->total_bytes < limits[0].total_bytes) {
      limits.push_back(*std::move(cgroup));
    }
  }
  for (HostLimit& limit : limits) {
    limit.available_bytes = std::clamp<int64_t>(limit.available_bytes, 0, limit.total_bytes);
  }
  return limits;
}

absl::StatusOr<HostMemory> ProbeHostMemory(const std::string& root) {
  BH_ASSIGN_OR_RETURN(const std::vector<HostLimit> limits, ProbeHostLimits(root));
  HostMemory memory{limits[0].total_bytes, limits[0].available_bytes};
  for (const HostLimit& limit : limits) {
    memory.total_bytes = std::min(memory.total_bytes, limit.total_bytes);
    memory.available_bytes = std::min(memory.available_bytes, limit.available_bytes);
  }
  return memory;
}

std::optional<HostLimit> TightestCgroup(const std::string& root) {
  const absl::StatusOr<std::vector<HostLimit>> limits = ProbeHostLimits(root);
  std::optional<HostLimit> tightest;
  if (!limits.ok()) return tightest;
  for (const HostLimit& limit : *limits) {
    if (!limit.cgroup) continue;
    if (!tightest || limit.available_bytes < tightest->available_bytes) tightest = limit;
  }
  return tightest;
}

int64_t ResidentBytes() { return StatusBytes("VmRSS:"); }

int64_t ResidentAnonymousBytes() { return StatusBytes("RssAnon:"); }

}  // namespace bulkhead
