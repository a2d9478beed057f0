#include "launcher/group/provenance.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/whole_file.h"
#include "comm/mpi/mpi_session.h"
#include "launcher/version.h"

namespace bulkhead {
namespace {

// Variables set by the launcher itself and the names of users' secrets are excluded.
constexpr const char* kMpiPrefixes[] = {"OMPI_MCA_btl",   "OMPI_MCA_pml", "OMPI_MCA_coll",
                                        "OMPI_MCA_mtl",   "OMPI_MCA_osc", "OMPI_MCA_hwloc",
                                        "OMPI_MCA_rmaps", "UCX_",         "NCCL_"};

// The first variable that is set.
std::string FirstOf(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = environment(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

std::string CommandLine() {
  std::string text = ReadWholeFile("/proc/self/cmdline").value_or("");
  if (!text.empty() && text.back() == '\0') text.pop_back();
  return absl::StrJoin(absl::StrSplit(text, '\0'), " ");
}

std::string Kernel() {
  utsname name;
  return uname(&name) == 0 ? absl::StrCat(name.sysname, " ", name.release, " ", name.machine)
                           : "unknown";
}

}  // namespace

std::map<std::string, std::string> ProvenanceOf(const Environment& environment,
                                                const char* const* variables) {
  std::map<std::string, std::string> facts;
  const auto add = [&facts](const char* key, const std::string& value) {
    if (!value.empty()) facts[key] = value;
  };
  add("launcher", ReadLaunchEnvironment(environment).launcher);
  add("job_id", FirstOf(environment, {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"}));
  add("job_name", FirstOf(environment, {"SLURM_JOB_NAME", "PBS_JOBNAME", "LSB_JOBNAME"}));
  add("job_nodes", FirstOf(environment, {"SLURM_JOB_NODELIST", "LSB_HOSTS"}));
  std::set<std::string> chosen;
  for (; *variables != nullptr; ++variables) {
    for (const char* prefix : kMpiPrefixes) {
      if (absl::StartsWith(*variables, prefix)) chosen.insert(*variables);
    }
  }
  add("mpi_environment", absl::StrJoin(chosen, " "));
  return facts;
}

std::map<std::string, std::string> Provenance() {
  std::map<std::string, std::string> facts =
      ProvenanceOf([](const char* name) -> const char* { return std::getenv(name); }, environ);
  facts["command"] = CommandLine();
  facts["build"] = std::string(BuildText());
  facts["cpu"] = CpuName();
  facts["kernel"] = Kernel();
  facts["mpi"] = MpiVersion();
  return facts;
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StartsWith(field.first, "model name")) {
      return std::string(absl::StripAsciiWhitespace(field.second));
    }
  }
  return "unknown";
}

std::string DateText() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
}

}  // namespace bulkhead
