// Regex: a pattern of a tokenizer.json, run by Oniguruma, the engine of the reference library.
// Immutable; thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct re_pattern_buffer;  // Oniguruma's

namespace bulkhead {

// A part of a text, and whether a pattern matched it. Spans that are given out together cover the
// text, in order; a match may be empty.
struct Span {
  size_t begin = 0, end = 0;
  bool is_match = false;
};

// The CPU time that one request may spend in regular expressions. One per request; used by one
// thread.
class RegexBudget {
 public:
  static constexpr std::chrono::milliseconds kDefaultTime{10'000};
  explicit RegexBudget(std::chrono::milliseconds time = kDefaultTime);
  // Counts one call of the engine. False when the time is over: the clock is read now and then, and
  // always after a call that was `long_search`.
  bool Spend(bool long_search);

 private:
  const std::chrono::nanoseconds deadline_;
  int calls_ = 0;
  bool spent_ = false;
};

class Regex {
 public:
  // INVALID_ARGUMENT for a pattern that does not compile, UNIMPLEMENTED for one with \G.
  static absl::StatusOr<std::unique_ptr<Regex>> Compile(absl::string_view pattern);
  ~Regex();

  // Appends spans that cover `text` (valid UTF-8, below 2 GiB). RESOURCE_EXHAUSTED at a limit of
  // matching: of time, or of memory, which is 32 bytes for each of the text's while it lasts.
  absl::Status FindAll(absl::string_view text, RegexBudget& budget, std::vector<Span>* spans) const;

 private:
  explicit Regex(re_pattern_buffer* code) : code_(code) {}
  re_pattern_buffer* const code_;
};

}  // namespace bulkhead
