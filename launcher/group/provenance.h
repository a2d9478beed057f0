// How this group was built and started, to reproduce measurements.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "comm/launch_environment.h"

namespace bulkhead {

// For this process. Keys: command, build, cpu, kernel, mpi; under a launcher also launcher and, if
// known, job_id, job_name, job_nodes; mpi_environment: variables that change MPI's behaviour.
std::map<std::string, std::string> Provenance();

// The part from the environment. `variables`: NAME=VALUE.
std::map<std::string, std::string> ProvenanceOf(const Environment& environment,
                                                const char* const* variables);

std::string CpuName();   // the kernel's name for it, or "unknown"
std::string DateText();  // now, in UTC: "2026-11-21T09:30:00Z"

}  // namespace bulkhead
