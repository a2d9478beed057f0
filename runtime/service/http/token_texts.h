// TokenTexts: the texts of tokens beside their log probabilities. Used by one thread.
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

  // First, where the tokens begin with those of an echoed prompt: nothing stands before them.
  void BeginPrompt();
  // Before the next tokens of an answer, or all: `text_bytes` of text came with them. Where that is
  // more than theirs in all, nothing follows them.
  void BeginAnswer(int num_tokens, size_t text_bytes);
  // The text of the next token of the answer: joined, they are the answer's text. A character of
  // several tokens is the last one's; where the answer ends inside it, U+FFFD.
  std::string Next(uint32_t id);
  // What stands for a token of that text: "token_id:ID" where the client asked for ids.
  std::string Shown(uint32_t id, const std::string& text) const;
  // The bytes of a token, which may be a part of a character; where they are not known, those of
  // its text.
  std::string BytesOf(uint32_t id, const std::string& text) const;
  // That of another token in the place of any.
  std::string Alone(uint32_t id) const;

 private:
  const Tokenizer* const tokenizer_;
  const bool as_ids_;
  const bool skip_special_tokens_;
  // What stands before an answer, so that its first token has its space.
  std::vector<int32_t> before_;
  std::string before_text_;
  std::unique_ptr<TextDecoder> decoder_;
  // Of the tokens begun with, how many are to come, and by how many bytes the answer's text is
  // longer than theirs so far.
  int num_left_ = 0;
  int64_t bytes_ahead_ = 0;
};

// Log probabilities as completions have them: four lists, tokens one by one. In order of fields.
struct CompletionLogprobs {
  std::string tokens, token_logprobs, top_logprobs, text_offset;

  // Without brackets; `offset`: characters of text before it, which moves on. The others' texts are
  // most of the work: without `with_top` top_logprobs stays as it is.
  void Add(const v1::Token& token, TokenTexts& texts, size_t* offset, bool with_top);
  std::string Json() const;
};

// One element of vLLM's list "prompt_logprobs": {"ID": {logprob, rank, decoded_token}}, the token's
// own first; null of a prompt's first.
void AppendPromptLogprob(const v1::Token& token, const TokenTexts& texts, std::string* out);

// One element of the list "content" of a chat's log probabilities.
void AppendChatLogprob(const v1::Token& token, TokenTexts& texts, std::string* out);

}  // namespace bulkhead
