#include "comm/mpi_version.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

namespace bulkhead {

std::string MpiVersion() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";
  const std::string version = text;  // Open MPI counts the terminating zero in `length`
  return version.substr(0, version.find('\n'));
}

}  // namespace bulkhead
