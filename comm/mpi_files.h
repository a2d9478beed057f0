// The files that Open MPI makes on a host: a segment of shared memory for each rank, by which the
// ranks of one host speak, and a folder for each mpirun. A launch that is killed leaves them there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "comm/launch_environment.h"

namespace bulkhead {

// What `ranks` of one host must find free in a folder of shared memory for MPI to start.
int64_t SegmentBytes(int ranks);

// Whether `folder` has it; RESOURCE_EXHAUSTED with both sizes, and ExitCode::kGroupNotUp.
absl::Status CheckRoomForSegments(const LaunchEnvironment& launch, const std::string& folder);

// The folder that Open MPI's segments go to, "" where it makes none.
std::string SegmentFolder(const LaunchEnvironment& launch, const Environment& environment);

// This rank's own segment, from MPI_Init on. Its name is needed for no longer than until all ranks
// of the host have mapped it.
class MpiSegment {
 public:
  // `local_rank`: as the launcher counts; -1 when it does not say, and nothing happens below.
  explicit MpiSegment(int local_rank) : local_rank_(local_rank) {}
  // Once all ranks of the host have returned from MPI_Init: nothing is left behind, however the
  // group ends.
  void RemoveName();
  // Before MPI_Finalize, which removes the name and complains when it cannot.
  void PutNameBack() const;

 private:
  const int local_rank_;
  std::string path_;  // while its name is removed
};

// What launches of this user leave behind, and where.
struct Leftovers {
  std::string segments;  // the folder of "vader_segment.HOST.UID.JOB.RANK"
  std::string host;
  std::string launches;  // the folder of mpirun's "pid.PID", or ""
  absl::Duration age;    // younger ones stay
};

// Removes the segments that no process maps, and the folders whose process is gone; returns how
// many.
int RemoveLeftovers(const Leftovers& where);

}  // namespace bulkhead
