#include "base/wrong_file.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace bulkhead {

std::string WrongFileText(absl::string_view begin, int64_t file_bytes) {
  if (absl::StartsWith(begin, "version https://git-lfs.github.com/spec/")) {
    return absl::StrCat(
        "is a Git LFS pointer of ", file_bytes,
        " bytes, not the file itself; run git lfs pull in its folder, or download it "
        "with hf download");
  }
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(begin);
  for (const absl::string_view page : {"<!doctype html", "<html"}) {
    if (!absl::StartsWithIgnoreCase(text, page)) continue;
    return absl::StrCat("is an HTML page (begins with ", text.substr(0, page.size()),
                        "), not the file itself; download it again: sites return such a page if a "
                        "model requires a login, or for the address of the file's web page");
  }
  return "";
}

}  // namespace bulkhead
