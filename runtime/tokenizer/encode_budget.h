// Limits on one encoding. A tokenizer.json is untrusted: the size of its results is bounded before
// memory is allocated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/regex.h"

namespace bulkhead {

// Maximum length of a text, before and during processing.
constexpr size_t kMaxTextBytes = size_t{1} << 25;
// Maximum bytes, or tokens, per input byte: NFKD produces up to 11, doubled by byte-level
// characters. A short text may always use kAlwaysAllowed.
constexpr size_t kMaxGrowth = 32;
constexpr size_t kAlwaysAllowed = size_t{64} << 10;

// Limits the total size of all parts of a text. Parts are processed in turn, each counted at its
// maximum length: otherwise a file that expands and shrinks every part would take unbounded time.
class Allowance {
 public:
  // `doing` and `unit` are used in the message.
  Allowance(absl::string_view doing, absl::string_view unit, size_t text_bytes)
      : doing_(doing),
        unit_(unit),
        text_bytes_(text_bytes),
        limit_(std::min(kMaxTextBytes, std::max(kAlwaysAllowed, kMaxGrowth * text_bytes))),
        left_(limit_) {}

  size_t left() const { return left_; }
  // RESOURCE_EXHAUSTED with the limit if `amount` exceeds the remainder.
  absl::Status Check(size_t amount) const;
  // Call after each part. REQUIRES: Check(longest) was ok.
  void Use(size_t longest) { left_ -= longest; }

 private:
  const absl::string_view doing_, unit_;
  const size_t text_bytes_, limit_;
  size_t left_;
};

// A text limited to an allowance's remainder; anything beyond it is dropped.
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
