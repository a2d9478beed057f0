// Open MPI's files on a host: a shared memory segment per rank, for messages within the host, and a
// folder per mpirun. A killed launch leaves them behind.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "comm/launch_environment.h"

namespace bulkhead {

// Free bytes that `ranks` of one host need in a shared memory folder for MPI to start.
int64_t SegmentBytes(int ranks);

// Whether `folder` has them; RESOURCE_EXHAUSTED with both sizes and ExitCode::kGroupNotUp.
absl::Status CheckRoomForSegments(const LaunchEnvironment& launch, const std::string& folder);

// The folder of Open MPI's segments; "" if it creates none.
std::string SegmentFolder(const LaunchEnvironment& launch, const Environment& environment);

// This rank's own segment, after MPI_Init. Its name is only needed until all ranks of the host have
// mapped it.
class MpiSegment {
 public:
  // `local_rank`: from the launcher; if -1 (unknown), the calls below do nothing.
  explicit MpiSegment(int local_rank) : local_rank_(local_rank) {}
  // After all ranks of the host have returned from MPI_Init: nothing is left behind, however the
  // group ends.
  void RemoveName();
  // Before MPI_Finalize, which removes the name and logs an error if it cannot.
  void PutNameBack() const;

 private:
  const int local_rank_;
  std::string path_;  // set while its name is removed
};

// Files left behind by this user's launches, and where to look.
struct Leftovers {
  std::string segments;  // folder of "vader_segment.HOST.UID.JOB.RANK", of Open MPI 5 "sm_segment"
  std::string host;
  std::string launches;       // folder of mpirun's "pid.PID", of 5 "prterun.HOST.PID.UID", or ""
  std::string launch_prefix;  // of their names, before PID
  absl::Duration age;         // younger ones are kept
};

// Removes segments that no process maps and folders whose process is gone; returns how many.
int RemoveLeftovers(const Leftovers& where);

}  // namespace bulkhead
