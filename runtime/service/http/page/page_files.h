// The files of the page at /, which are part of the program.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead {

struct PageFile {
  absl::string_view path;  // the request's path
  absl::string_view content_type;
  absl::string_view text;
};

absl::Span<const PageFile> PageFiles();

}  // namespace bulkhead
