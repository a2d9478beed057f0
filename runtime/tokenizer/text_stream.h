// TextStream: streaming detokenisation. Its joined output is the decoding of prompt and generated
// tokens together minus its common prefix (in characters) with the decoded prompt: a character
// started by the prompt is emitted whole, nothing of the prompt is repeated, and after an empty
// prompt it equals decoding everything at once. Never emits part of a character, nor text that a
// later token could change (a run of byte tokens is held back until its end), and holds back a
// possible beginning of a stop string. Deterministic in the tokens. One per request; used by one
// thread.
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
    std::string forced = {};  // a beginning in which stop strings are not matched
  };
  // `prompt` precedes the generated tokens; its end is decoded here (see
  // Tokenizer::NewTextDecoder). `tokenizer` may be null: then text stays empty; otherwise it must
  // outlive the stream.
  TextStream(const Tokenizer* tokenizer, absl::Span<const int32_t> prompt, Options options);
  ~TextStream();

  struct Piece {
    std::string text;                        // ready to be sent
    std::optional<std::string> stop_string;  // set if a stop string ended the text
  };
  // Adds one generated token. `may_stop` false: stop strings are not matched yet (min_tokens). The
  // stop string that ends first ends the text; of several that end together, the longest. Must not
  // be called after a stop string was found.
  Piece Add(int32_t token, bool may_stop);
  // The rest, at the end of the generation: held-back text, with U+FFFD for an incomplete
  // character, up to a stop string that only completes now. Empty after a stop string was found.
  std::string Flush();
  // The rest, if another stream may continue the generation: like Flush(), without text that the
  // next token could change, such as an incomplete character.
  std::string TakeHeld();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead
