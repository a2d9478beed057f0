// Tokenizer: a Hugging Face tokenizer.json, interpreted: normalizers, pre-tokenizers, BPE, added
// tokens, post-processor, decoders. What it gives equals what the reference library (PyPI's
// `tokenizers`) gives. "truncation" and "padding" are ignored: they are the caller's to decide.
// Immutable after loading; every method is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead {

// Decodes tokens as they come. What it gives out, joined, is what decoding all of them at once
// gives; no character comes in halves, and nothing comes before it is certain. Used by one thread.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  // Adds a token; returns the text that no later token can change any more.
  virtual std::string Add(int32_t id) = 0;
  // The rest, if no token follows. Changes nothing.
  virtual std::string Finish() const = 0;
};

class Tokenizer {
 public:
  // Reads DIR/tokenizer.json. NOT_FOUND when there is none; INVALID_ARGUMENT for a file that is not
  // one; UNIMPLEMENTED naming the part that is not supported. Failures name the file's path and
  // carry exit code 3.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& dir);
  // The same from the file's text; `source` is what messages call it.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(
      absl::string_view json_text, absl::string_view source = "tokenizer.json");
  virtual ~Tokenizer() = default;

  // INVALID_ARGUMENT for text that is not UTF-8, RESOURCE_EXHAUSTED when it is or becomes too long
  // or a regex of the file runs into a limit. Added tokens inside the text are matched. O(n log n).
  virtual absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                                      bool add_special_tokens) const = 0;
  // No text of so many bytes has fewer tokens. 0 where that would take encoding it to know, as it
  // does where a normaliser may shorten a text, or a token stand for any number of bytes.
  virtual size_t MinTokenCount(size_t /*text_bytes*/) const { return 0; }
  // Ids that the vocabulary does not have decode to nothing. Bytes that are no UTF-8 become U+FFFD.
  virtual std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const = 0;

  // A decoder for one sequence that has read `prompt` and given out what it could: of a long prompt
  // only as much of the end as makes a difference is gone through. The tokenizer must outlive it.
  // The one given here decodes each token alone.
  virtual std::unique_ptr<TextDecoder> NewTextDecoder(absl::Span<const int32_t> prompt,
                                                      bool skip_special_tokens) const;

  virtual int vocab_size() const = 0;  // largest id + 1, added tokens included
};

}  // namespace bulkhead
