// How a process of ours ends. A status that must end the process carries its code as a payload, so
// that the cause and the code travel together through a group-wide agreement.
#pragma once

#include "absl/status/status.h"

namespace bulkhead {

enum class ExitCode : int {
  kOk = 0,            // a clean end, or a drain
  kClientError = 1,   // a client command got an error from the server, or a prompt failed
  kUsage = 2,         // bad flags
  kModelRefused = 3,  // config, checkpoint or tokenizer refused
  kDoesNotFit = 4,    // does not fit in memory
  kGroupNotUp = 5,    // a rank is missing or differs, wrong group size, start-up deadline
  kRankLost = 6,      // a rank died or went silent
  kCannotBind = 7,    // a listener could not bind
  kBug = 70,          // a bug of ours
};

// The same status, carrying `code`. An ok status is returned as it is.
absl::Status WithExitCode(absl::Status status, ExitCode code);

// The code that `status` carries; without one: kOk when ok, else kBug.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace bulkhead
