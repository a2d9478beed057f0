// A file's text, for those who want all of it, whether standard input's was all of it, and what is
// said of a file that cannot be written.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// All bytes of `path`, which may also be a pipe or a file of /proc. INVALID_ARGUMENT with exit code
// 2, naming it, when it is a directory, cannot be read, or is larger than 1 GiB.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

// The same of standard input, which may have 64 MiB: no tokenizer takes as much.
absl::StatusOr<std::string> ReadStandardInput();

// Asked when standard input seems to have ended: INVALID_ARGUMENT with exit code 2 when it broke
// off with an error instead, as a directory does.
absl::Status CheckStandardInput();

// Right after a stream did not open or write: INVALID_ARGUMENT with exit code 2, "cannot write
// --out FILE: why", from errno.
absl::Status CannotWrite(absl::string_view flag, const std::string& path);

}  // namespace bulkhead
