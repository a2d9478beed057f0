// What `bulkhead --version` prints.
#pragma once

#include <string>
#include <vector>

namespace bulkhead {

// "bulkhead 0.1.0 (1a2b3c4)" and below it compiler, CUDA, commit date, MPI and the CPU's
// instruction set, one per line.
std::string VersionText();

// Whether the command line is "version", "--version" or "COMMAND --version".
bool AsksForVersion(const std::vector<std::string>& args);

}  // namespace bulkhead
