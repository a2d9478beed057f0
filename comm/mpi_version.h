// Which MPI this program runs with.
#pragma once

#include <string>

namespace bulkhead {

// The library's own words, in one line. May be asked at any time, also when MPI was never started.
std::string MpiVersion();

}  // namespace bulkhead
