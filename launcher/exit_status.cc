#include "launcher/exit_status.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "memory/exit_code.h"

namespace bulkhead {
namespace {

bool IsFirstRank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* rank = std::getenv(variable);
    if (rank != nullptr) return absl::string_view(rank) == "0";
  }
  return true;
}

}  // namespace

int ExitWith(const absl::Status& status) {
  std::fflush(stdout);
  if (!status.ok()) {
    const std::string cause = absl::StrReplaceAll(status.message(), {{"\r", " "}, {"\n", " "}});
    std::fputs(absl::StrCat("bulkhead: ", cause, "\n").c_str(), stderr);
  }
  return static_cast<int>(ExitCodeOf(status));
}

int ExitRankWith(const absl::Status& status) {
  return IsFirstRank() ? ExitWith(status) : static_cast<int>(ExitCodeOf(status));
}

}  // namespace bulkhead
