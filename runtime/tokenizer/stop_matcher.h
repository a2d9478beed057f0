// StopMatcher: looks for stop strings in a text that comes in parts, and holds back what could be
// the beginning of one. Used by one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/tokenizer/aho_corasick.h"

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
  std::vector<std::string> stop_;
  AhoCorasick automaton_;
  AhoCorasick::State state_ = AhoCorasick::kStart;
  std::string held_;
};

}  // namespace bulkhead
