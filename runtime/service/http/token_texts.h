// TokenTexts: the texts of tokens that are sent with their log probabilities. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bulkhead/v1/generation.pb.h"
#include "runtime/service/http/generation_options.h"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

class TokenTexts {
 public:
  // `tokenizer` may be null: tokens are then shown as ids, and have no text.
  TokenTexts(const Tokenizer* tokenizer, const GenerationOptions& options);

  // Call first if the tokens begin with an echoed prompt's: no text precedes them.
  void BeginPrompt();
  // Call before the next tokens, or all, of an answer, which came with `text_bytes` of text. If
  // that is more than the tokens' own bytes, they are the last.
  void BeginAnswer(int num_tokens, size_t text_bytes);
  // The text of the next token of the answer: joined, they are the answer's text. A character of
  // several tokens belongs to the last of them; U+FFFD if the answer ends inside it.
  std::string Next(uint32_t id);
  // How a token with that text is shown: "token_id:ID" if the client asked for ids.
  std::string Shown(uint32_t id, const std::string& text) const;
  // The bytes of a token, which may be a part of a character; if not known, those of its text.
  std::string BytesOf(uint32_t id, const std::string& text) const;
  // The shown text of an alternative token, whatever its position.
  std::string Alone(uint32_t id) const;

 private:
  const Tokenizer* const tokenizer_;
  const bool as_ids_;
  const bool skip_special_tokens_;
  // The tokens before an answer, so that its first token has its space.
  std::vector<int32_t> before_;
  std::string before_text_;
  std::unique_ptr<TextDecoder> decoder_;
  // How many of the tokens given to BeginAnswer are to come, and by how many bytes the answer's
  // text exceeds theirs so far.
  int num_left_ = 0;
  int64_t bytes_ahead_ = 0;
};

// Log probabilities as in completions: four lists, one token at a time. In order of fields.
struct CompletionLogprobs {
  std::string tokens, token_logprobs, top_logprobs, text_offset;

  // Without brackets; `offset`: characters of text before the token, and is advanced. Texts of the
  // top tokens are most of the work: without `with_top` top_logprobs is unchanged.
  void Add(const v1::Token& token, TokenTexts& texts, size_t* offset, bool with_top);
  std::string Json() const;
};

// One element of vLLM's list "prompt_logprobs": {"ID": {logprob, rank, decoded_token}}, the token's
// own first; null for a prompt's first token.
void AppendPromptLogprob(const v1::Token& token, const TokenTexts& texts, std::string* out);

// One element of the list "content" of a chat's log probabilities.
void AppendChatLogprob(const v1::Token& token, TokenTexts& texts, std::string* out);

}  // namespace bulkhead
