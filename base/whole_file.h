// Reading whole files and standard input, with truncation detected, and the error for a file that
// cannot be written.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// All bytes of `path`, which may also be a pipe or a /proc file. INVALID_ARGUMENT with exit code 2
// and the path if it is a directory, cannot be read, or is larger than 1 GiB.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

// The same for standard input, up to 64 MiB: more than any tokenizer accepts.
absl::StatusOr<std::string> ReadStandardInput();

// Call at the end of standard input: INVALID_ARGUMENT with exit code 2 if it ended with a read
// error (for example, a directory).
absl::Status CheckStandardInput();

// Call right after a stream failed to open or write: INVALID_ARGUMENT with exit code 2, "cannot
// write --out FILE: why", from errno.
absl::Status CannotWrite(absl::string_view flag, const std::string& path);

}  // namespace bulkhead
