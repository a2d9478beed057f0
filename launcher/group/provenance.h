// How this group was built and started, for those who want to measure it again.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "comm/launch_environment.h"

namespace bulkhead {

// Of this process. Keys: command, build, cpu, kernel, mpi; under a launcher launcher and job_id,
// job_name, job_nodes where it says so; mpi_environment: the variables that change how MPI behaves.
std::map<std::string, std::string> Provenance();

// The part that the environment tells. `variables`: NAME=VALUE.
std::map<std::string, std::string> ProvenanceOf(const Environment& environment,
                                                const char* const* variables);

}  // namespace bulkhead
