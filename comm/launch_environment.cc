#include "comm/launch_environment.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/exit_code.h"
#include "base/whole_file.h"
#include "comm/mpi/tcp_ports.h"

namespace bulkhead {
namespace {

// 0 if absent or not a number.
int Number(const Environment& environment, const char* name) {
  const char* text = environment(name);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) && value > 0 ? value : 0;
}

// -1 if absent or not an index.
int Index(const Environment& environment, const char* name) {
  const char* text = environment(name);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) && value >= 0 ? value : -1;
}

// "2" and "2(x4)" mean 2 on every node; "2,1" is ambiguous.
int SlurmLocalSize(const Environment& environment) {
  const char* const text = environment("SLURM_STEP_TASKS_PER_NODE");
  if (text == nullptr || absl::StrContains(text, ",")) return 0;
  int value = 0;
  const std::string each = std::string(text).substr(0, std::string(text).find('('));
  return absl::SimpleAtoi(each, &value) && value > 0 ? value : 0;
}

// Only these make a mapping imply a binding.
bool MapsToCores(absl::string_view mapping) {
  const std::string upper = absl::AsciiStrToUpper(mapping);
  return absl::StrContains(upper, "PE=") || absl::StrContains(upper, "PE-LIST=") ||
         absl::StrContains(upper, "RANKFILE");
}

// Whether options or variables of Open MPI 5's mpirun ask for a binding. An option's value follows
// "=", or is the next argument.
bool AsksForBinding(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view name = arguments[i];
    const bool is_option = absl::ConsumePrefix(&name, "-");
    absl::ConsumePrefix(&name, "-");
    const size_t equals = name.find('=');
    absl::string_view value;
    if (i + 1 < arguments.size()) value = arguments[i + 1];
    if (equals != absl::string_view::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    if (!is_option) {
      if (absl::StartsWith(name, "PRTE_MCA_hwloc_")) return true;
      if (name == "PRTE_MCA_rmaps_default_mapping_policy" && MapsToCores(value)) return true;
      continue;
    }
    if (name == "bind-to" || name == "cpu-set" || name == "cpu-list" || name == "rankfile" ||
        name == "rf" || (name == "map-by" && MapsToCores(value)) ||
        ((name == "mca" || name == "prtemca") && absl::StrContains(value, "hwloc_"))) {
      return true;
    }
  }
  return false;
}

// Open MPI 4's mpirun passes its options on in variables; for Open MPI 5 see `launcher_arguments`.
bool BoundByDefault(const Environment& environment,
                    const std::vector<std::string>& launcher_arguments) {
  if (environment("PRTE_LAUNCHED") != nullptr) {
    return !launcher_arguments.empty() && !AsksForBinding(launcher_arguments);
  }
  if (environment("OMPI_MCA_orte_bound_at_launch") == nullptr) return false;
  for (const char* const asked :
       {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_hwloc_base_cpu_set",
        "OMPI_MCA_hwloc_base_cpu_list", "OMPI_MCA_orte_rankfile"}) {
    if (environment(asked) != nullptr) return false;
  }
  const char* const mapping = environment("OMPI_MCA_rmaps_base_mapping_policy");
  return mapping == nullptr || !MapsToCores(mapping);
}

absl::Status Refusal(const LaunchEnvironment& launch, absl::string_view why) {
  return WithExitCode(absl::FailedPreconditionError(absl::StrCat(
                          launch.launcher, " started ", launch.expected_size, " ranks, but ", why,
                          "; use mpirun -n ", launch.expected_size, ", or srun --mpi=pmix -n ",
                          launch.expected_size)),
                      ExitCode::kGroupNotUp);
}

}  // namespace

LaunchEnvironment ReadLaunchEnvironment(const Environment& environment,
                                        const std::vector<std::string>& launcher_arguments) {
  LaunchEnvironment launch;
  launch.has_pmix = environment("PMIX_NAMESPACE") != nullptr && environment("PMIX_RANK") != nullptr;
  if (environment("OMPI_COMM_WORLD_SIZE") != nullptr) {
    launch.launcher = "mpirun";
    launch.expected_size = Number(environment, "OMPI_COMM_WORLD_SIZE");
    launch.local_size = Number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
    launch.local_rank = Index(environment, "OMPI_COMM_WORLD_LOCAL_RANK");
    launch.one_host = launch.expected_size == launch.local_size;
    launch.bound_by_default = BoundByDefault(environment, launcher_arguments);
    return launch;
  }
  // A batch script has SLURM_PROCID without a step; an interactive shell is a one-task step
  // although SLURM_NTASKS is the job's.
  if (environment("SLURM_STEP_ID") != nullptr && environment("SLURM_PROCID") != nullptr) {
    const bool knows_step = environment("SLURM_STEP_NUM_TASKS") != nullptr;
    const int tasks = Number(environment, knows_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
    if (tasks > 1 || launch.has_pmix) {
      launch.launcher = "srun";
      launch.expected_size = tasks;
      launch.one_host = Number(environment, "SLURM_STEP_NUM_NODES") == 1;
      launch.local_size = SlurmLocalSize(environment);
      launch.local_rank = Index(environment, "SLURM_LOCALID");
      return launch;
    }
  }
  if (launch.has_pmix) {
    launch.launcher = "a PMIx launcher";
    return launch;
  }
  if (Number(environment, "PMI_SIZE") > 1) {
    launch.launcher = "a PMI launcher";
    launch.expected_size = Number(environment, "PMI_SIZE");
  }
  return launch;
}

std::vector<std::string> LauncherArguments() {
  const Launcher launcher = FindLauncher(getpid());
  if (launcher.name != kOpenMpi5Launcher) return {};
  const std::string folder = absl::StrCat("/proc/", launcher.pid, "/");
  const std::string all = absl::StrCat(ReadWholeFile(folder + "cmdline").value_or(""),
                                       ReadWholeFile(folder + "environ").value_or(""));
  return absl::StrSplit(all, '\0', absl::SkipEmpty());
}

void SetMpiEnvironment(const LaunchEnvironment& launch) {
  constexpr int kKeep = 0;
  if (!launch.by_launcher()) return;
  if (launch.one_host) setenv("OMPI_MCA_btl", "self,vader", kKeep);
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", kKeep);
}

absl::Status CheckCanConnect(const LaunchEnvironment& launch) {
  if (launch.expected_size <= 1 || launch.has_pmix) return absl::OkStatus();
  return Refusal(launch, "offers no PMIx server for them to meet");
}

absl::Status CheckSize(const LaunchEnvironment& launch, int size) {
  if (launch.expected_size == 0 || launch.expected_size == size) return absl::OkStatus();
  return Refusal(launch, absl::StrCat("this one came up in a group of ", size));
}

}  // namespace bulkhead
