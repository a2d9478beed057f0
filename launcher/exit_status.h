// The end of a command: its last line on standard error, and its exit code.
#pragma once

#include <csignal>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "base/exit_code.h"

namespace bulkhead {

// If the reader of a pipe has closed it: ends with SIGPIPE's exit code and no message.
inline constexpr auto kReaderGone = static_cast<ExitCode>(128 + SIGPIPE);

// Prints "bulkhead: cause" in one line unless `status` is ok, has kReaderGone, or a cause was
// already printed; returns its exit code. Any thread.
int ExitWith(const absl::Status& status);

// Exit for a rank of a group: only the first rank (by the launcher's numbering) prints, and the
// others give it half a second to do so.
int ExitRankWith(const absl::Status& status);

// For ranks other than the first: waits half a second for the launcher's SIGTERM. At the first exit
// code a launcher ends the remaining ranks, including the first one; and srun ends with the largest
// exit code, which would be from a rank killed by the signal.
bool EndedByLauncher();

// For an end that may hang, such as at a report on a file system that does not answer: calls
// `report`, which prints the last line and returns the exit code, after half a second, and exits
// with that code 5 s later. Without effect if no thread can be created.
void LimitEnd(std::function<int()> report);

// Whether all output to standard output was written; otherwise CANCELLED with kReaderGone, or
// DATA_LOSS with exit code 1.
absl::Status FlushStandardOutput();

// Prints a line, of at most 4 KiB, that others wait for; the result is FlushStandardOutput's.
// mpirun of Open MPI 5 (PMIx up to 5.0.10) prints the part that it has read of a line before
// whatever it reads next from either output of the same rank: the line is written once all of the
// log is read.
absl::Status PrintLine(const std::string& line);

// Whether this process is the launcher's rank 0, or was not launched.
bool IsFirstRank();
// ExitRankWith before there is a group: another rank than the first, whose cause may be its own,
// prints it with its number if it is still running then.
int ExitUnjoinedRankWith(const absl::Status& status);

}  // namespace bulkhead
