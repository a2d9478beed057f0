// The CPU cores that this process may use.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bulkhead {

// More than any host has: an upper bound for received values.
inline constexpr int kMaxCores = 8192;

// The cores of a process's affinity mask, ascending; {0} if it cannot be read. `process` 0: the
// calling thread's.
std::vector<int> AllowedCores(int process = 0);

// A list as the kernel writes it, "0-3,8", of at most kMaxCores numbers below kMaxCores; empty if
// malformed.
std::vector<int> ParseKernelList(const std::string& text);
// The list in the first line of a file; empty if absent.
std::vector<int> ReadKernelList(const std::string& path);

// In the kernel's core list format: "0-3,8".
std::string CoreListText(const std::vector<int>& cores);

// The first core of each physical core among `cores`: SMT siblings share its units. `root` is a
// prefix of /sys.
std::vector<int> OnePerPhysicalCore(const std::vector<int>& cores, const std::string& root = "");

// The NUMA nodes of `cores`, ascending; empty if the kernel does not report them.
std::vector<int> NumaNodesOf(const std::vector<int>& cores, const std::string& root = "");

// The allowed cores on the NUMA node of a PCI device ("0000:65:00.0"); all allowed cores if the
// node is unknown or has no allowed core. `root` as in cgroup.h.
std::vector<int> AllowedCoresNear(const std::string& pci_bus_id, const std::string& root = "");
// Restricts this thread, and threads it creates later, to these cores.
void UseCores(const std::vector<int>& cores);

// The CPU limit of the cgroups, in cores: the lowest quota / period of all ancestors (v1 and v2),
// greater than 0; none if unlimited. A container limited to 2 of 64 cores has 64 allowed cores and
// a quota of 2. `root` as in cgroup.h.
std::optional<double> CoreQuota(const std::string& root = "");

}  // namespace bulkhead
