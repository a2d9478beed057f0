// What one encoding may use. A tokenizer.json is other people's: what it makes of a text is bounded
// while it is made, before the memory is spent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/regex.h"

namespace bulkhead {

// No text may be longer, nor become longer on its way.
constexpr size_t kMaxTextBytes = size_t{1} << 25;
// So many bytes, or tokens, may be made of a byte: NFKD makes up to 11, and byte-level characters
// double that. Of a short text so much all the same.
constexpr size_t kMaxGrowth = 32;
constexpr size_t kAlwaysAllowed = size_t{64} << 10;

// What all parts of a text together may become. Parts come one after the other, and each counts
// with the longest it was: else a file that blows up and deflates every part would take for ever.
class Allowance {
 public:
  // `doing` and `unit` are the message's words.
  Allowance(absl::string_view doing, absl::string_view unit, size_t text_bytes)
      : doing_(doing),
        unit_(unit),
        text_bytes_(text_bytes),
        limit_(std::min(kMaxTextBytes, std::max(kAlwaysAllowed, kMaxGrowth * text_bytes))),
        left_(limit_) {}

  size_t left() const { return left_; }
  // RESOURCE_EXHAUSTED, naming the limit, when `amount` is more than what is left.
  absl::Status Check(size_t amount) const;
  // A part is done. REQUIRES: Check(longest) was ok.
  void Use(size_t longest) { left_ -= longest; }

 private:
  const absl::string_view doing_, unit_;
  const size_t text_bytes_, limit_;
  size_t left_;
};

// A text that grows no further than an allowance has left; what does not fit is dropped.
class BoundedText {
 public:
  explicit BoundedText(const Allowance& allowance)
      : allowance_(allowance), limit_(allowance.left()) {}

  void Append(absl::string_view part) {
    wanted_ += part.size();
    if (wanted_ <= limit_) text_.append(part.data(), part.size());
  }
  void Reserve(size_t bytes) { text_.reserve(std::min(bytes, limit_)); }
  size_t size() const { return text_.size(); }
  absl::Status status() const { return allowance_.Check(wanted_); }
  // REQUIRES: status() is ok.
  std::string Take() { return std::move(text_); }

 private:
  const Allowance& allowance_;
  const size_t limit_;
  std::string text_;
  size_t wanted_ = 0;
};

// One per request; used by one thread.
struct EncodeBudget {
  explicit EncodeBudget(size_t text_bytes)
      : normalized("normalising", "bytes", text_bytes),
        pre_tokenized("pre-tokenising", "bytes", text_bytes),
        tokens("tokenising", "tokens", text_bytes) {}

  RegexBudget regex;
  Allowance normalized, pre_tokenized, tokens;
};

}  // namespace bulkhead
