#include "launcher/machine_code.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace bulkhead {
namespace {

// Machine code runs on its own major version, from its minor version on; code with a letter ("90a")
// only on its exact version.
bool RunsOn(absl::string_view architecture, int major, int minor) {
  if (absl::EndsWith(architecture, "-virtual")) return false;
  const auto end = std::find_if_not(architecture.begin(), architecture.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
  const auto digits = static_cast<size_t>(end - architecture.begin());
  int number = 0;
  // "native", "all": builders who use these know the GPUs.
  if (!absl::SimpleAtoi(architecture.substr(0, digits), &number)) return true;
  const bool own_alone = digits < architecture.size() && architecture[digits] == 'a';
  return number / 10 == major && (own_alone ? number % 10 == minor : number % 10 <= minor);
}

}  // namespace

std::string CompilesAtStart(absl::string_view architectures, int major, int minor) {
  for (const absl::string_view architecture : absl::StrSplit(architectures, ';')) {
    if (RunsOn(architecture, major, minor)) return "";
  }
  return absl::StrCat(
      "this build has no machine code for compute capability ", major, ".", minor, " (it is for ",
      architectures,
      "): the driver compiles every kernel, which may take minutes, unless "
      "~/.nv/ComputeCache (CUDA_CACHE_PATH) has it from an earlier start; build with "
      "-DCMAKE_CUDA_ARCHITECTURES=",
      major, "0 to do without");
}

}  // namespace bulkhead
