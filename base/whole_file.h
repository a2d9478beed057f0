// Reading whole files and standard input, with truncation detected; writing whole files, and the
// error for one that cannot be written.
#pragma once

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// All bytes of `path`, which may also be a pipe or a /proc file. INVALID_ARGUMENT with exit code 2
// and the path if it is a directory, cannot be read, or is larger than `most_bytes`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          size_t most_bytes = size_t{1} << 30);

// `path`, to be read line by line; the same errors, except its size.
absl::StatusOr<std::ifstream> OpenToRead(absl::string_view flag, const std::string& path);

// The same for standard input, up to 64 MiB: more than any tokenizer accepts.
absl::StatusOr<std::string> ReadStandardInput();

// Call at the end of standard input: INVALID_ARGUMENT with exit code 2 if it ended with a read
// error (for example, a directory).
absl::Status CheckStandardInput();

// Writes `text` to `path`, given by --`flag`, so that a reader finds the whole old file or the
// whole new one: through a temporary file beside it, unless `path` is something other than a
// regular file (a pipe, a device). Errors: CannotWrite.
absl::Status WriteWholeFile(absl::string_view flag, const std::string& path,
                            absl::string_view text);

// CannotWrite if WriteWholeFile would fail. Leaves no file where there was none.
absl::Status CheckCanWrite(absl::string_view flag, const std::string& path);

// Call right after a stream failed to open or write: INVALID_ARGUMENT with exit code 2, "cannot
// write --out FILE: why", from errno.
absl::Status CannotWrite(absl::string_view flag, const std::string& path);

}  // namespace bulkhead
