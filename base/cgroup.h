// The cgroups of a process: the limits set by containers and job schedulers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace bulkhead {

struct CgroupDir {
  std::string path;  // ends in "/"
  bool v2 = false;
};

// The cgroup of a process ("self" or a pid) and all its ancestors for `controller` ("memory",
// "cpu"), v1 and v2, innermost first. `root` is a prefix of /proc and /sys (for tests). A listed
// directory may not exist: a container sees only its own subtree.
std::vector<CgroupDir> CgroupDirs(absl::string_view controller, const std::string& root = "",
                                  absl::string_view process = "self");

// The number at the start of a file; none for "max" or an unreadable file.
std::optional<int64_t> ReadNumber(const std::string& path);

}  // namespace bulkhead
