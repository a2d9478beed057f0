// The control groups that a process runs in: what containers and job schedulers limit it with.
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

// The cgroup of a process (this one, or a number) and every ancestor of it that may govern
// `controller` ("memory", "cpu"), v1 and v2, innermost first. `root` is put before /proc and /sys
// (a made-up tree in tests). A directory of the list need not exist: a container sees only its own
// part of the tree.
std::vector<CgroupDir> CgroupDirs(absl::string_view controller, const std::string& root = "",
                                  absl::string_view process = "self");

// The number that a file begins with; none for "max" or an unreadable file.
std::optional<int64_t> ReadNumber(const std::string& path);

}  // namespace bulkhead
