#include "memory/host_cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

#include "memory/cgroup.h"

namespace bulkhead {

std::vector<int> AllowedCores() {
  std::vector<int> cores;
  unsigned char mask[kMaxCores / 8] = {};
  if (sched_getaffinity(0, sizeof(mask), reinterpret_cast<cpu_set_t*>(mask)) == 0) {
    for (int core = 0; core < kMaxCores; ++core) {
      if ((mask[core / 8] >> (core % 8) & 1) != 0) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

std::optional<double> CoreQuota(const std::string& root) {
  std::optional<double> least;
  for (const CgroupDir& dir : CgroupDirs("cpu", root)) {
    std::optional<int64_t> quota;
    std::optional<int64_t> period;
    if (dir.v2) {
      int64_t both[2] = {};
      std::ifstream file(dir.path + "cpu.max");
      if (file >> both[0] >> both[1]) {  // not when it says "max"
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
