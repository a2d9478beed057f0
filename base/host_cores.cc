#include "base/host_cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/cgroup.h"

namespace bulkhead {

std::vector<int> ParseKernelList(const std::string& text) {
  std::vector<int> list;
  for (const absl::string_view part :
       absl::StrSplit(absl::StripAsciiWhitespace(text), ',', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first) {
      return {};
    }
    for (int i = first; i <= last && i < kMaxCores && list.size() < kMaxCores; ++i) {
      list.push_back(i);
    }
  }
  return list;
}

std::vector<int> ReadKernelList(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return ParseKernelList(line);
}

std::vector<int> AllowedCores(int process) {
  std::vector<int> cores;
  unsigned char mask[kMaxCores / 8] = {};
  if (sched_getaffinity(process, sizeof(mask), reinterpret_cast<cpu_set_t*>(mask)) == 0) {
    for (int core = 0; core < kMaxCores; ++core) {
      if ((mask[core / 8] >> (core % 8) & 1) != 0) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

std::string CoreListText(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", cores[i]);
    if (last > i) absl::StrAppend(&text, "-", cores[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> OnePerPhysicalCore(const std::vector<int>& cores, const std::string& root) {
  std::vector<int> first;
  for (const int core : cores) {
    const std::vector<int> siblings = ReadKernelList(
        absl::StrCat(root, "/sys/devices/system/cpu/cpu", core, "/topology/thread_siblings_list"));
    const bool has_earlier = std::any_of(siblings.begin(), siblings.end(), [&](int sibling) {
      return sibling < core && std::binary_search(cores.begin(), cores.end(), sibling);
    });
    if (!has_earlier) first.push_back(core);
  }
  return first;
}

std::vector<int> NumaNodesOf(const std::vector<int>& cores, const std::string& root) {
  std::vector<int> nodes;
  for (const int node : ReadKernelList(root + "/sys/devices/system/node/online")) {
    const std::vector<int> of_node =
        ReadKernelList(absl::StrCat(root, "/sys/devices/system/node/node", node, "/cpulist"));
    const bool holds_one = std::any_of(of_node.begin(), of_node.end(), [&](int core) {
      return std::binary_search(cores.begin(), cores.end(), core);
    });
    if (holds_one) nodes.push_back(node);
  }
  return nodes;
}

std::vector<int> AllowedCoresNear(const std::string& pci_bus_id, const std::string& root) {
  const std::vector<int> of_node = ReadKernelList(absl::StrCat(
      root, "/sys/bus/pci/devices/", absl::AsciiStrToLower(pci_bus_id), "/local_cpulist"));
  const std::vector<int> allowed = AllowedCores();
  std::vector<int> near;
  std::set_intersection(allowed.begin(), allowed.end(), of_node.begin(), of_node.end(),
                        std::back_inserter(near));
  return near.empty() ? allowed : near;
}

void UseCores(const std::vector<int>& cores) {
  unsigned char mask[kMaxCores / 8] = {};
  for (const int core : cores) mask[core / 8] |= static_cast<unsigned char>(1 << (core % 8));
  sched_setaffinity(0, sizeof(mask), reinterpret_cast<const cpu_set_t*>(mask));
}

std::optional<double> CoreQuota(const std::string& root) {
  std::optional<double> least;
  for (const CgroupDir& dir : CgroupDirs("cpu", root)) {
    std::optional<int64_t> quota;
    std::optional<int64_t> period;
    if (dir.v2) {
      int64_t both[2] = {};
      std::ifstream file(dir.path + "cpu.max");
      if (file >> both[0] >> both[1]) {  // false for "max"
        quota = both[0];
        period = both[1];
      }
    } else {
      quota = ReadNumber(dir.path + "cpu.cfs_quota_us");  // -1: none
      period = ReadNumber(dir.path + "cpu.cfs_period_us");
    }
    if (quota.value_or(0) <= 0 || period.value_or(0) <= 0) continue;
    const double cores = static_cast<double>(*quota) / static_cast<double>(*period);
    least = std::min(least.value_or(cores), cores);
  }
  return least;
}

}  // namespace bulkhead
