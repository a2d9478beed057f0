// Recognises files that were downloaded incorrectly.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// Number of leading bytes that WrongFileText needs.
inline constexpr int64_t kWrongFileBytes = 512;

// "is a Git LFS pointer of 134 bytes ...", or an HTML page: what is wrong and how to fix it; else
// "". Appended to the file name. `begin`: at least the first kWrongFileBytes of the file, or all of
// it.
std::string WrongFileText(absl::string_view begin, int64_t file_bytes);

}  // namespace bulkhead
