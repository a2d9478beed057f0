// The MPI library in use.
#pragma once

#include <string>

namespace bulkhead {

// Its version string, in one line. May be called at any time, even if MPI was never started.
std::string MpiVersion();

}  // namespace bulkhead
