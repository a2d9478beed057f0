#include "runtime/chat/output_delta.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace bulkhead {
namespace {

constexpr size_t kMaxHeldSpace = 1024;

}  // namespace

size_t FindMarker(absl::string_view text, absl::Span<const absl::string_view> markers,
                  size_t* which, size_t* safe) {
  size_t at = absl::string_view::npos;
  for (size_t i = 0; i < markers.size(); ++i) {
    const size_t found = text.find(markers[i]);
    if (found == absl::string_view::npos) continue;
    if (at == absl::string_view::npos || found < at ||
        (found == at && markers[i].size() > markers[*which].size())) {
      at = found;
      *which = i;
    }
  }
  *safe = text.size();
  for (const absl::string_view marker : markers) {
    for (size_t length = std::min(marker.size() - 1, text.size()); length > 0; --length) {
      if (!absl::EndsWith(text, marker.substr(0, length))) continue;
      *safe = std::min(*safe, text.size() - length);
      break;
    }
  }
  return at;
}

bool MayBecome(absl::string_view text, absl::string_view word) {
  return text.size() < word.size() && absl::StartsWith(word, text);
}

void TextWriter::Give(absl::string_view text, std::vector<ParsedDelta>* out) {
  if (text.empty()) return;
  any_ = true;
  if (out->empty() || out->back().kind != kind_)
    out->push_back({.kind = kind_, .text = "", .call_index = 0, .call_id = "", .call_name = ""});
  out->back().text.append(text.data(), text.size());
}

void TextWriter::Write(absl::string_view text, std::vector<ParsedDelta>* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (!absl::ascii_isspace(text[i])) {
      is_beside_call_ = may_replace_held_ = false;
      Give(held_, out);
      held_.clear();
      size_t end = i;
      while (end < text.size() && !absl::ascii_isspace(text[end])) ++end;
      Give(text.substr(i, end - i), out);
      i = end - 1;
    } else {
      if (std::exchange(may_replace_held_, false)) held_.clear();
      const bool has_enough = !any_ || held_.size() + 1 == kMaxHeldSpace;
      if (is_beside_call_ && has_enough) continue;
      held_ += text[i];
      if (held_.size() == kMaxHeldSpace) Flush(out);
    }
  }
}

void TextWriter::BesideCall() {
  if (!any_) held_.clear();
  is_beside_call_ = may_replace_held_ = true;
}

void TextWriter::Flush(std::vector<ParsedDelta>* out) {
  if (!is_beside_call_) Give(held_, out);
  held_.clear();
}

}  // namespace bulkhead
