#include "tests/runtime/tokenizer/streaming.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace bulkhead {

Streamed Stream(const Tokenizer* tokenizer, const Ids& prompt, const Ids& generated,
                const TextStream::Options& options) {
  TextStream stream(tokenizer, prompt, options);
  Streamed result;
  for (const int32_t token : generated) {
    const TextStream::Piece piece = stream.Add(token, true);
    EXPECT_TRUE(IsValidUtf8(piece.text));
    result.text += piece.text;
    ++result.num_tokens;
    if (piece.stop_string.has_value()) {
      result.stop = piece.stop_string;
      return result;
    }
  }
  result.text += stream.Flush();
  return result;
}

std::string Continuation(const Tokenizer& tokenizer, const Ids& prompt, const Ids& generated,
                         bool skip_special_tokens) {
  Ids all = prompt;
  all.insert(all.end(), generated.begin(), generated.end());
  const std::string before = tokenizer.Decode(prompt, skip_special_tokens);
  const std::string whole = tokenizer.Decode(all, skip_special_tokens);
  size_t same = 0;
  while (same < before.size() && same < whole.size() && before[same] == whole[same]) ++same;
  while (same > 0 && !(IsCharBoundary(before, same) && IsCharBoundary(whole, same))) --same;
  return whole.substr(same);
}

}  // namespace bulkhead
