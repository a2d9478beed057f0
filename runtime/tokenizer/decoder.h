// Decoder: the "decoder" of a tokenizer.json: turns tokens back into text. Its steps work on a
// stream: what decoding the whole gives comes out in order, each part as soon as no later token can
// change it. A Decoder is immutable and thread-safe; what it makes is used by one thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/json_part.h"

namespace bulkhead {

// Takes tokens, each as fragments of whole characters and an end, and then the end of the text.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void Append(absl::string_view fragment) = 0;
  virtual void EndToken() = 0;
  virtual void EndText() = 0;

  void Token(absl::string_view token) {
    Append(token);
    EndToken();
  }
};

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // A sink that passes what this step makes of tokens to `next`, which it does not own.
  virtual std::unique_ptr<TokenSink> NewSink(TokenSink* next) const = 0;
};

class Decoder {
 public:
  // `part` may be null: then tokens are joined with spaces. UNIMPLEMENTED names a step that is not
  // supported.
  static absl::StatusOr<Decoder> Read(const JsonPart& part);

  // The sinks of all steps; the first takes tokens, the last adds to `text`.
  class Chain {
   public:
    TokenSink& front() { return *front_; }
    // What has come out since the last call.
    std::string TakeText() { return std::exchange(text_, std::string()); }

   private:
    friend class Decoder;
    std::string text_;
    std::vector<std::unique_ptr<TokenSink>> sinks_;
    TokenSink* front_ = nullptr;
  };
  std::unique_ptr<Chain> NewChain() const;

 private:
  std::vector<std::unique_ptr<DecoderStep>> steps_;
};

// Appends the step(s) that `part` describes.
absl::Status ReadDecoderSteps(const JsonPart& part, int depth,
                              std::vector<std::unique_ptr<DecoderStep>>* steps);
// What tokenizers without a decoder do.
std::unique_ptr<DecoderStep> NewJoinWithSpaces();

}  // namespace bulkhead
