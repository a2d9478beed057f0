// StopMatcher: looks for stop strings in a text that comes in parts, and holds back what could be
// the beginning of one. Used by one thread. It takes few bytes until there is text, and then 5 for
// each byte of the stop strings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace bulkhead {

class StopMatcher {
 public:
  // Empty stop strings are ignored.
  explicit StopMatcher(std::vector<std::string> stop);

  // Appends to `out` what of the text up to here may be given out. Returns the stop string that
  // ended the text, or null: the one that ends first, of those that end together the longest. Its
  // own text is appended when `include_stop`. One that ends in a part with `may_stop` false is not
  // looked for.
  struct Rule {
    bool may_stop = true;
    bool include_stop = false;
  };
  const std::string* Feed(absl::string_view part, Rule rule, std::string* out);
  // What was held back, when no text follows.
  std::string TakeHeld();

 private:
  // One stop string, by Knuth, Morris and Pratt.
  class Pattern {
   public:
    explicit Pattern(std::string text) : text_(std::move(text)) {}
    const std::string& text() const { return text_; }
    size_t matched() const { return matched_; }  // bytes at the end of the text that begin it
    bool found() const { return matched_ == text_.size(); }
    void Next(char byte);
    void Restart() { matched_ = 0; }

   private:
    void FindBorders();

    std::string text_;
    // By length less 1: the longest beginning of text_ that also ends its beginning of that
    // length, and is shorter. Empty until there is text.
    std::vector<uint32_t> borders_;
    size_t matched_ = 0;
  };

  std::vector<Pattern> patterns_;
  std::string held_;
};

}  // namespace bulkhead
