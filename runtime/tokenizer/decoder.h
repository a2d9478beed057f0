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
  enum class Place { kBetweenTokens, kInsideToken };

  virtual ~TokenSink() = default;
  virtual void Append(absl::string_view fragment) = 0;
  virtual void EndToken() = 0;
  virtual void EndText() = 0;
  // What comes next stands at `place` in the middle of tokens of which the earlier ones are not
  // known. The sink passes on nothing until they make no difference any more, then tells the next
  // sink in the same way, and passes on what it makes of the rest. Called first, or never; the text
  // is not ended before the last sink was told.
  virtual void JoinAt(Place place) = 0;

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
    // Begins after some tokens that are not known.
    void Join() { front_->JoinAt(TokenSink::Place::kBetweenTokens); }
    // Whether since Join() all has come that what comes out from now on depends on.
    bool joined() const { return joined_; }
    // What has come out since the last call.
    std::string TakeText() { return std::exchange(text_, std::string()); }

   private:
    friend class Decoder;
    std::string text_;
    bool joined_ = false;
    std::vector<std::unique_ptr<TokenSink>> sinks_;
    TokenSink* front_ = nullptr;
  };
  std::unique_ptr<Chain> NewChain() const;

  // So many times as long as its tokens can the text be that its replacements make, or less.
  double growth() const { return growth_; }

 private:
  std::vector<std::unique_ptr<DecoderStep>> steps_;
  double growth_ = 1;
};

// Appends the step(s) that `part` describes, and multiplies `growth` by theirs.
absl::Status ReadDecoderSteps(const JsonPart& part, int depth,
                              std::vector<std::unique_ptr<DecoderStep>>* steps, double* growth);
std::unique_ptr<DecoderStep> NewByteLevelDecoder();
std::unique_ptr<DecoderStep> NewByteFallbackDecoder();
// What tokenizers without a decoder do.
std::unique_ptr<DecoderStep> NewJoinWithSpaces();

}  // namespace bulkhead
