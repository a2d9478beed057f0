#include "launcher/version_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "comm/mpi/mpi_session.h"
#include "launcher/version.h"
#include "launcher/wire.h"
#include "memory/nvidia_driver.h"

namespace bulkhead {

std::string VersionText() {
  const std::string driver = NvidiaDriverVersion();
  return absl::StrCat("bulkhead ", Version(), "\n",
                      absl::StrReplaceAll(BuildText(), {{" | ", "\n"}}), "\nMPI: ", MpiVersion(),
                      "\nNVIDIA driver: ", driver.empty() ? "none" : driver,
                      "\ninstruction set: ", IsaNameOf(CpuIsa::kAuto), "\n");
}

bool AsksForVersion(const std::vector<std::string>& args) {
  return (!args.empty() && (args[0] == "version" || args[0] == "--version")) ||
         (args.size() == 2 && args[1] == "--version");
}

}  // namespace bulkhead
