// A generation's streamed text, and the expected one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/tokenizer/text_stream.h"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

using Ids = std::vector<int32_t>;

struct Streamed {
  std::string text;
  std::optional<std::string> stop;
  int num_tokens = 0;
};
Streamed Stream(const Tokenizer* tokenizer, const Ids& prompt, const Ids& generated,
                const TextStream::Options& options);

// The decoding of prompt and generated tokens together minus its common prefix, in characters, with
// the decoded prompt.
std::string Continuation(const Tokenizer& tokenizer, const Ids& prompt, const Ids& generated,
                         bool skip_special_tokens = true);

}  // namespace bulkhead
