#include "runtime/tokenizer/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace bulkhead {

void StopMatcher::Pattern::FindBorders() {
  borders_.resize(text_.size());
  for (size_t i = 1; i < text_.size(); ++i) {
    uint32_t border = borders_[i - 1];
    while (border > 0 && text_[border] != text_[i]) border = borders_[border - 1];
    borders_[i] = text_[border] == text_[i] ? border + 1 : 0;
  }
}

void StopMatcher::Pattern::Next(char byte) {
  if (borders_.empty()) FindBorders();
  while (matched_ > 0 && (found() || text_[matched_] != byte)) matched_ = borders_[matched_ - 1];
  if (text_[matched_] == byte) ++matched_;
}

StopMatcher::StopMatcher(std::vector<std::string> stop) {
  patterns_.reserve(stop.size());
  for (std::string& text : stop) {
    if (!text.empty()) patterns_.emplace_back(std::move(text));
  }
}

const std::string* StopMatcher::Feed(absl::string_view part, Rule rule, std::string* out) {
  if (patterns_.empty()) {
    absl::StrAppend(out, part);
    return nullptr;
  }
  const size_t before = held_.size();
  absl::StrAppend(&held_, part);
  for (size_t i = before; i < held_.size(); ++i) {
    const Pattern* longest = nullptr;
    for (Pattern& pattern : patterns_) {
      pattern.Next(held_[i]);
      const bool longer = longest == nullptr || pattern.text().size() > longest->text().size();
      if (pattern.found() && longer) longest = &pattern;
    }
    if (longest == nullptr || !rule.may_stop) continue;
    out->append(held_, 0, i + 1 - longest->text().size());
    if (rule.include_stop) out->append(longest->text());
    held_.clear();
    return &longest->text();
  }
  size_t begun = 0;
  for (const Pattern& pattern : patterns_) begun = std::max(begun, pattern.matched());
  const size_t ready = CharStart(held_, held_.size() - begun);
  out->append(held_, 0, ready);
  held_.erase(0, ready);
  return nullptr;
}

std::string StopMatcher::TakeHeld() {
  for (Pattern& pattern : patterns_) pattern.Restart();
  return std::exchange(held_, std::string());
}

}  // namespace bulkhead
