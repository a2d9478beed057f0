#include "base/cgroup.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace bulkhead {

std::vector<CgroupDir> CgroupDirs(absl::string_view controller, const std::string& root,
                                  absl::string_view process) {
  std::vector<CgroupDir> dirs;
  std::ifstream cgroups(absl::StrCat(root, "/proc/", process, "/cgroup"));
  std::string line;
  while (std::getline(cgroups, line)) {
    // hierarchy:controllers:path, with no controllers for v2
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || !absl::StartsWith(parts[2], "/")) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool v2 = parts[1].empty();
    if (!v2 && std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) {
      continue;
    }
    const std::string mount =
        absl::StrCat(root, "/sys/fs/cgroup", v2 ? "" : "/", v2 ? "" : controller);
    std::string path(absl::StripSuffix(parts[2], "/"));
    while (true) {
      dirs.push_back({absl::StrCat(mount, path, "/"), v2});
      if (path.empty()) break;
      path.resize(path.rfind('/'));
    }
  }
  return dirs;
}

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  int64_t value = 0;
  if (!(file >> text) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

}  // namespace bulkhead
