#include "runtime/tokenizer/stop_matcher.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {

StopMatcher::StopMatcher(std::vector<std::string> stop)
    : stop_(std::move(stop)), automaton_(stop_) {}

const std::string* StopMatcher::Feed(absl::string_view part, Rule rule, std::string* out) {
  if (automaton_.empty()) {
    absl::StrAppend(out, part);
    return nullptr;
  }
  const size_t before = held_.size();
  absl::StrAppend(&held_, part);
  for (size_t i = before; i < held_.size(); ++i) {
    state_ = automaton_.Next(state_, static_cast<uint8_t>(held_[i]));
    const int32_t match = automaton_.Match(state_);
    if (match == AhoCorasick::kNone || !rule.may_stop) continue;
    const std::string& stop = stop_[match];
    out->append(held_, 0, i + 1 - stop.size());
    if (rule.include_stop) out->append(stop);
    held_.clear();
    return &stop;
  }
  size_t ready = held_.size() - automaton_.Depth(state_);
  while (ready > 0 && !IsCharBoundary(held_, ready)) --ready;
  out->append(held_, 0, ready);
  held_.erase(0, ready);
  return nullptr;
}

std::string StopMatcher::TakeHeld() {
  state_ = AhoCorasick::kStart;
  return std::exchange(held_, std::string());
}

}  // namespace bulkhead
