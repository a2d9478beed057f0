// Decoder: the "decoder" of a tokenizer.json: converts tokens to text. Its steps are streaming:
// their joined output equals decoding everything at once, each part emitted as soon as no later
// token can change it. A Decoder is immutable and thread-safe; the sinks it creates are used by one
// thread.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/json_part.h"

namespace bulkhead {

// Receives tokens, each as fragments of whole characters followed by an end, and then the end of
// the text.
class TokenSink {
 public:
  enum class Place { kBetweenTokens, kInsideToken };

  virtual ~TokenSink() = default;
  virtual void Append(absl::string_view fragment) = 0;
  virtual void EndToken() = 0;
  virtual void EndText() = 0;
  // The following input starts at `place` in the middle of a token sequence whose beginning is
  // unknown. The sink emits nothing until the unknown part no longer matters, then calls JoinAt on
  // the next sink, and continues with the remaining output. Called first or not at all; the text
  // does not end before the last sink was called.
  virtual void JoinAt(Place place) = 0;

  void Token(absl::string_view token) {
    Append(token);
    EndToken();
  }
};

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // A sink that applies this step and passes the result to `next`, which it does not own.
  virtual std::unique_ptr<TokenSink> NewSink(TokenSink* next) const = 0;
};

class Decoder {
 public:
  // `part` may be null: then tokens are joined with spaces. UNIMPLEMENTED names an unsupported
  // step.
  static absl::StatusOr<Decoder> Read(const JsonPart& part);

  // The sinks of all steps; the first receives tokens, the last appends to `text`.
  class Chain {
   public:
    TokenSink& front() { return *front_; }
    // Starts in the middle of a sequence whose earlier tokens are unknown.
    void Join() { front_->JoinAt(TokenSink::Place::kBetweenTokens); }
    // Whether the output no longer depends on what came before Join().
    bool joined() const { return joined_; }
    // Output since the last call.
    std::string TakeText() { return std::exchange(text_, std::string()); }

   private:
    friend class Decoder;
    std::string text_;
    bool joined_ = false;
    std::vector<std::unique_ptr<TokenSink>> sinks_;
    TokenSink* front_ = nullptr;
  };
  std::unique_ptr<Chain> NewChain() const;

  // Call before BytesOf, once it is known that tokens do not expand to too much text.
  void LearnBytes();
  // What a token adds in the middle of a text, which may be a part of a character; absent if that
  // depends on the surrounding tokens.
  std::optional<std::string> BytesOf(absl::string_view token) const;

  // Upper bound on the text's length relative to its tokens', due to replacements.
  double growth() const { return growth_; }

 private:
  std::string TextOf(std::initializer_list<absl::string_view> tokens) const;

  std::vector<std::unique_ptr<DecoderStep>> steps_;
  double growth_ = 1;
  bool is_byte_level_ = false, has_byte_fallback_ = false;
  std::string first_a_, next_a_;  // what an "a" adds at the start, and later
};

// Appends the step(s) in `part`, and multiplies `growth` by their growth.
absl::Status ReadDecoderSteps(const JsonPart& part, int depth,
                              std::vector<std::unique_ptr<DecoderStep>>* steps, double* growth);
std::unique_ptr<DecoderStep> NewByteLevelDecoder();
std::unique_ptr<DecoderStep> NewByteFallbackDecoder();
// The step used without a decoder.
std::unique_ptr<DecoderStep> NewJoinWithSpaces();

}  // namespace bulkhead
