// TextStream: turns tokens into text as they come. What it gives out, joined, equals decoding the
// whole; it never gives out half a character, and holds back what could be the beginning of a stop
// string. One per request; used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

class TextStream {
 public:
  struct Options {
    bool skip_special_tokens = true;
    bool include_stop_in_output = false;
    std::vector<std::string> stop;
  };
  // `prompt` is what the generated tokens follow: only as much of it as decoding needs is looked
  // at. `tokenizer` may be null: then text stays empty.
  TextStream(const Tokenizer* tokenizer, absl::Span<const int32_t> prompt, Options options);
  ~TextStream();

  struct Piece {
    std::string text;                        // ready to be sent
    std::optional<std::string> stop_string;  // the one that ended the text, which ends here
  };
  // Adds one generated token. `may_stop` false: stop strings are not looked for yet (min_tokens).
  // Must not be called after a stop string was found.
  Piece Add(int32_t token, bool may_stop);
  // The rest, at the end of the generation: held-back text, U+FFFD for an unfinished character.
  std::string Flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead
