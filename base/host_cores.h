// The processor cores that this process may use.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bulkhead {

// More cores than any host has: a bound on what others tell.
inline constexpr int kMaxCores = 8192;

// The cores of this process's affinity mask, ascending; {0} when it cannot be read.
std::vector<int> AllowedCores();

// As the kernel writes a list of cores: "0-3,8".
std::string CoreListText(const std::vector<int>& cores);

// The NUMA nodes that hold any of `cores`, ascending; empty where the kernel does not say. `root`
// is put before /sys.
std::vector<int> NumaNodesOf(const std::vector<int>& cores, const std::string& root = "");

// Of the cores that this process may use, those near a PCI device ("0000:65:00.0"): on its NUMA
// node. All of them where the system does not say, or where none is near. `root` as in cgroup.h.
std::vector<int> AllowedCoresNear(const std::string& pci_bus_id, const std::string& root = "");
// Leaves this thread, and those it starts from now on, these cores alone.
void UseCores(const std::vector<int>& cores);

// How many cores' worth of time the cgroups grant, where they limit it: the least quota over period
// of every ancestor (v1 and v2), more than 0. A container with 2 of 64 cores has 64 allowed cores
// and a quota of 2. `root` as in cgroup.h.
std::optional<double> CoreQuota(const std::string& root = "");

}  // namespace bulkhead
