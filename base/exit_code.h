// Process exit codes. A status that must end the process carries its code as a payload, so cause
// and code travel together through a group-wide agreement.
#pragma once

#include "absl/status/status.h"

namespace bulkhead {

enum class ExitCode : int {
  kOk = 0,            // clean exit, or drained
  kClientError = 1,   // a client command got an error from the server, or a prompt failed
  kUsage = 2,         // bad flags
  kModelRefused = 3,  // config, checkpoint or tokenizer refused
  kDoesNotFit = 4,    // does not fit in memory
  kGroupNotUp = 5,    // a rank is missing or differs, wrong group size, start-up deadline
  kRankLost = 6,      // a rank died or went silent
  kCannotBind = 7,    // a listener could not bind
  kBug = 70,          // internal error
};

// `status` with `code` attached. An ok status is returned unchanged.
absl::Status WithExitCode(absl::Status status, ExitCode code);

// The code that `status` carries; otherwise kOk if ok, else kBug.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace bulkhead
