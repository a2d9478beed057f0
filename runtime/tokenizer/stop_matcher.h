// StopMatcher: finds stop strings in a streamed text, and holds back a possible beginning of one.
// Used by one thread. Small until there is text, then 5 bytes per byte of the stop strings.
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

  // Appends the releasable part of the text to `out`. Returns the stop string that ended the text,
  // or null: the one that ends first, of several the longest. Its own text is appended if
  // `include_stop`. A stop string that ends in a part with `may_stop` false is ignored.
  struct Rule {
    bool may_stop = true;
    bool include_stop = false;
  };
  const std::string* Feed(absl::string_view part, Rule rule, std::string* out);
  // The held-back text; call when no more text follows.
  std::string TakeHeld();

 private:
  // One stop string, matched by Knuth-Morris-Pratt.
  class Pattern {
   public:
    explicit Pattern(std::string text) : text_(std::move(text)) {}
    const std::string& text() const { return text_; }
    size_t matched() const {
      return matched_;
    }  // length of the text's suffix that is a prefix of
       // it
    bool found() const { return matched_ == text_.size(); }
    void Next(char byte);
    void Restart() { matched_ = 0; }

   private:
    void FindBorders();

    std::string text_;
    // By length - 1: the longest proper border of that prefix of text_. Empty until text arrives.
    std::vector<uint32_t> borders_;
    size_t matched_ = 0;
  };

  std::vector<Pattern> patterns_;
  std::string held_;
};

}  // namespace bulkhead
