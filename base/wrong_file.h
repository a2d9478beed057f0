// What came in place of a file that was to be downloaded.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// Enough of a file's beginning for WrongFileText.
inline constexpr int64_t kWrongFileBytes = 512;

// "is a Git LFS pointer of 134 bytes ...", or an HTML page: what is wrong and what to do, or "". To
// follow the file's name. `begin`: at least the first kWrongFileBytes of it, or all.
std::string WrongFileText(absl::string_view begin, int64_t file_bytes);

}  // namespace bulkhead
