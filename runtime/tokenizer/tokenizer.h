// Tokenizer: an interpreter of Hugging Face tokenizer.json files: normalizers, pre-tokenizers, BPE,
// added tokens, post-processor, decoders. Results equal those of the reference library (PyPI's
// `tokenizers`). "truncation" and "padding" are ignored: the caller decides. Immutable after
// loading; every method is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead {

// Streaming decoder. Its joined output equals decoding all tokens at once; characters are never
// split, and text is only returned once it is final. Used by one thread.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  // Adds a token; returns the text that no later token can change.
  virtual std::string Add(int32_t id) = 0;
  // The rest, when no token follows.
  virtual std::string Finish() = 0;
};

class Tokenizer {
 public:
  // Reads DIR/tokenizer.json, and from tokenizer_config.json whether a text gets a BOS and an EOS
  // token (special_tokens_map.json may have the token). NOT_FOUND without tokenizer.json;
  // INVALID_ARGUMENT for an invalid file; UNIMPLEMENTED naming an unsupported part. Errors name the
  // file's path and carry exit code 3.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& dir);
  // The same from the file's text; `source` names it in messages.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(
      absl::string_view json_text, absl::string_view source = "tokenizer.json");
  virtual ~Tokenizer() = default;

  // INVALID_ARGUMENT for text that is not UTF-8, RESOURCE_EXHAUSTED when a regular expression
  // reaches its match limit or the text expands too much. Added tokens inside the text are matched.
  // O(n log n).
  virtual absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                                      bool add_special_tokens) const = 0;
  // Minimum number of tokens of any text of that many bytes. 0 if unknown without encoding, such as
  // when a normaliser may shorten a text, or a token may cover any number of bytes.
  virtual size_t MinTokenCount(size_t /*text_bytes*/) const { return 0; }
  // Unknown ids decode to nothing. Invalid UTF-8 becomes U+FFFD.
  virtual std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const = 0;

  // A decoder for a sequence that starts with `prompt`, whose text counts as already returned as
  // far as possible: only the relevant end of a long prompt is processed. The tokenizer must
  // outlive it. This default decodes each token separately.
  virtual std::unique_ptr<TextDecoder> NewTextDecoder(absl::Span<const int32_t> prompt,
                                                      bool skip_special_tokens) const;

  virtual int vocab_size() const = 0;  // largest id + 1, including added tokens
  // The vocabulary's spelling, such as "\u0120a" for " a"; empty for an id without a token.
  virtual std::string TokenOf(int32_t /*id*/) const { return {}; }

  // The bytes that an id adds in the middle of a text; possibly parts of characters, so not always
  // UTF-8. Empty for special tokens and ids without token. Absent if not known, for example if they
  // depend on the surrounding tokens.
  virtual std::optional<std::string> BytesOf(int32_t id) const;
  // The same for vocab_size() ids. UNIMPLEMENTED if any are absent. Slow: to be called once.
  absl::StatusOr<std::vector<std::string>> TokenBytes() const;
};

}  // namespace bulkhead
