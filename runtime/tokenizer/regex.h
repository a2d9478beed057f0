// Regex: a pattern of a tokenizer.json, written for Oniguruma, run by PCRE2. Immutable; thread-safe
// (working memory is small and per thread, except for kDeepMatchBytes).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// A part of a text, and whether a pattern matched it. Spans returned together cover the text, in
// order; a match may be empty.
struct Span {
  size_t begin = 0, end = 0;
  bool is_match = false;
};

// Limit on the CPU time of one request's regular expressions: a text is not refused because the
// machine is busy. One per request; used by the thread that makes it.
class RegexBudget {
 public:
  static constexpr std::chrono::milliseconds kDefaultTime{10'000};
  explicit RegexBudget(std::chrono::milliseconds time = kDefaultTime) : time_(time) {}
  // Counts one match call. False once the time is over. The clock, a system call, is read
  // occasionally; the time begins at its first reading, after some calls.
  bool Spend();

 private:
  std::chrono::nanoseconds time_;
  int64_t end_ns_ = 0;  // in the thread's CPU time
  int calls_ = 0;
  bool spent_ = false;
};

// Temporary memory of a match with deep backtracking; there is one such match at a time.
inline constexpr size_t kDeepMatchBytes = size_t{16} << 20;

class Regex {
 public:
  // UNIMPLEMENTED or INVALID_ARGUMENT for a pattern that cannot be run as in Oniguruma.
  static absl::StatusOr<std::unique_ptr<Regex>> Compile(absl::string_view oniguruma_pattern);
  ~Regex();

  // Appends spans that cover `text` (valid UTF-8). RESOURCE_EXHAUSTED at a match limit.
  absl::Status FindAll(absl::string_view text, RegexBudget& budget, std::vector<Span>* spans) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace bulkhead
