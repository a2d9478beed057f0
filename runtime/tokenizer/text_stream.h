// TextStream: turns tokens into text as they come. What it gives out, joined, is what decoding
// prompt and generated tokens together has beyond its common beginning (in characters) with the
// decoded prompt: a character that the prompt began comes whole, nothing of the prompt comes twice,
// and after an empty prompt it is decoding the whole. It never gives out half a character, nor text
// that a later token could change (a run of byte tokens waits for its end), and holds back what
// could be the beginning of a stop string. Adding the same tokens again gives the same text. One
// per request; used by one thread.
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
  // `prompt` is what the generated tokens follow; its end is decoded here
  // (Tokenizer::NewTextDecoder says how much). `tokenizer` may be null: then text stays empty; else
  // it must outlive the stream.
  TextStream(const Tokenizer* tokenizer, absl::Span<const int32_t> prompt, Options options);
  ~TextStream();

  struct Piece {
    std::string text;                        // ready to be sent
    std::optional<std::string> stop_string;  // the one that ended the text, which ends here
  };
  // Adds one generated token. `may_stop` false: stop strings are not looked for yet (min_tokens).
  // The stop string that ends first ends the text; of those that end together, the longest. Must
  // not be called after a stop string was found.
  Piece Add(int32_t token, bool may_stop);
  // The rest, at the end of the generation: held-back text, U+FFFD for an unfinished character, up
  // to a stop string that only shows now. Empty after a stop string was found.
  std::string Flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead
