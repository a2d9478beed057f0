// Decoder steps that produce text from bytes. Each documents what it holds back.
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/decoder.h"
#include "runtime/tokenizer/decoder_step_of.h"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {
namespace {

// Maps byte-level characters to bytes and then text, per token. A token with any other character is
// kept unchanged. Holds back an incomplete character.
class ByteLevelSink : public TokenSink {
 public:
  explicit ByteLevelSink(TokenSink* next) : next_(next) {}
  void Append(absl::string_view fragment) override { absl::StrAppend(&token_, fragment); }
  void EndToken() override {
    absl::string_view bytes = ByteLevelToBytes(token_, &bytes_) ? bytes_ : token_;
    if (joining_) bytes = Join(bytes);
    text_.clear();
    repair_.Append(bytes, &text_);
    if (!joining_) next_->Append(text_);
    token_.clear();
  }
  void EndText() override {
    text_.clear();
    repair_.Flush(&text_);
    next_->Token(text_);
    next_->EndText();
  }
  void JoinAt(Place place) override {
    joining_ = true;
    inside_ = place == Place::kInsideToken;
  }

 private:
  // The part of a token's bytes that is certain: an incomplete character ends before a lead byte,
  // or after three continuation bytes.
  absl::string_view Join(absl::string_view bytes) {
    constexpr int kMaxMissing = 3;
    if (std::exchange(inside_, false)) return {};  // unknown whether it was byte-level
    for (; !bytes.empty() && !IsCharBoundary(bytes, 0) && missing_ < kMaxMissing; ++missing_) {
      bytes.remove_prefix(1);
    }
    if (bytes.empty()) return {};
    joining_ = false;
    next_->JoinAt(Place::kInsideToken);
    return bytes;
  }

  TokenSink* const next_;
  std::string token_, bytes_, text_;
  Utf8Repair repair_;
  int missing_ = 0;  // bytes that may complete an earlier character
  bool joining_ = false, inside_ = false;
};

// Maps tokens like <0xE4> to bytes. A run of them becomes one token of text or, if it is not valid
// UTF-8 as a whole, a U+FFFD token for each byte: this is only known at the end, so the run is held
// back. A longer run than kMostHeldBytes is split into several, each ending with a character, so
// that a stream holds little; the reference's text differs if not all of them are valid.
class ByteFallbackSink : public TokenSink {
 public:
  explicit ByteFallbackSink(TokenSink* next) : next_(next) {}
  void Append(absl::string_view fragment) override {
    if (!passing_) {
      absl::StrAppend(&token_, fragment);
      if (token_.size() <= kByteTokenBytes) return;
      EndRun();
      passing_ = true;
      next_->Append(token_);
      token_.clear();
    } else {
      next_->Append(fragment);
    }
  }
  void EndToken() override {
    if (!std::exchange(passing_, false)) {
      if (std::exchange(inside_, false)) {  // the end of a byte token or of a text token
        token_.clear();
        return;
      }
      if (const std::optional<uint8_t> byte = ByteOf(token_); byte.has_value()) {
        AddToRun(static_cast<char>(*byte));
        token_.clear();
        return;
      }
      EndRun();
      next_->Append(token_);
      token_.clear();
    }
    next_->EndToken();
  }
  void EndText() override {
    EndRun();
    next_->EndText();
  }
  void JoinAt(Place place) override {
    joining_ = true;
    inside_ = place == Place::kInsideToken;
  }

 private:
  static constexpr size_t kByteTokenBytes = 6;
  static constexpr size_t kMostHeldBytes = 512;

  static std::optional<uint8_t> ByteOf(absl::string_view token) {
    if (token.size() != kByteTokenBytes || !absl::StartsWith(token, "<0x") || token[5] != '>') {
      return std::nullopt;
    }
    absl::string_view digits = token.substr(3, 2);
    if (digits[0] == '+') digits.remove_prefix(1);  // the reference's parser accepts a sign
    uint8_t byte = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return byte;
  }

  void AddToRun(char byte) {
    if (joining_) return;  // its beginning is missing
    constexpr size_t kMostOfAChar = 4;
    const bool is_within =
        !IsCharBoundary({&byte, 1}, 0) && run_.size() < kMostHeldBytes + kMostOfAChar;
    if (run_.size() >= kMostHeldBytes && !is_within) EndRun();
    run_.push_back(byte);
  }

  void EndRun() {
    if (std::exchange(joining_, false)) {
      next_->JoinAt(std::exchange(inside_, false) ? Place::kInsideToken : Place::kBetweenTokens);
    }
    if (run_.empty()) return;
    if (IsValidUtf8(run_)) {
      next_->Token(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) next_->Token(kReplacementChar);
    }
    run_.clear();
  }

  TokenSink* const next_;
  std::string token_, run_;
  bool passing_ = false;  // this token is too long to be a byte token
  bool joining_ = false, inside_ = false;
};

}  // namespace

std::unique_ptr<DecoderStep> NewByteLevelDecoder() { return MakeStep<ByteLevelSink>(); }
std::unique_ptr<DecoderStep> NewByteFallbackDecoder() { return MakeStep<ByteFallbackSink>(); }

}  // namespace bulkhead
