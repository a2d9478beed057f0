// The steps of decoders. Each says how little it holds back.
#include <charconv>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "memory/status.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/decoder.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {
namespace {

// Makes a DecoderStep of a sink class whose constructor takes `next` and then `settings`.
template <typename Sink, typename... Settings>
class StepOf : public DecoderStep {
 public:
  explicit StepOf(Settings... settings) : settings_(std::move(settings)...) {}
  std::unique_ptr<TokenSink> NewSink(TokenSink* next) const override {
    return std::apply(
        [next](const Settings&... settings) { return std::make_unique<Sink>(next, settings...); },
        settings_);
  }

 private:
  const std::tuple<Settings...> settings_;
};

template <typename Sink, typename... Settings>
std::unique_ptr<DecoderStep> MakeStep(Settings... settings) {
  return std::make_unique<StepOf<Sink, Settings...>>(std::move(settings)...);
}

// Characters of the byte-level alphabet to bytes, bytes to text: one token. A token with any other
// character is taken as it is. Holds back an unfinished character.
class ByteLevelSink : public TokenSink {
 public:
  explicit ByteLevelSink(TokenSink* next) : next_(next) {}
  void Append(absl::string_view fragment) override { absl::StrAppend(&token_, fragment); }
  void EndToken() override {
    text_.clear();
    repair_.Append(ByteLevelToBytes(token_, &bytes_) ? bytes_ : token_, &text_);
    next_->Append(text_);
    token_.clear();
  }
  void EndText() override {
    text_.clear();
    repair_.Flush(&text_);
    next_->Token(text_);
    next_->EndText();
  }

 private:
  TokenSink* const next_;
  std::string token_, bytes_, text_;
  Utf8Repair repair_;
};

// Tokens like <0xE4> to bytes. A run of them is one token of text, or, when it is not UTF-8 as a
// whole, a token U+FFFD for each: only the run's end tells, so the run is held back.
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
      if (const std::optional<uint8_t> byte = ByteOf(token_); byte.has_value()) {
        run_.push_back(static_cast<char>(*byte));
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

 private:
  static constexpr size_t kByteTokenBytes = 6;

  static std::optional<uint8_t> ByteOf(absl::string_view token) {
    if (token.size() != kByteTokenBytes || !absl::StartsWith(token, "<0x") || token[5] != '>') {
      return std::nullopt;
    }
    absl::string_view digits = token.substr(3, 2);
    if (digits[0] == '+') digits.remove_prefix(1);  // the reference's parser takes a sign
    uint8_t byte = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return byte;
  }

  void EndRun() {
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
  bool passing_ = false;  // this token is too long to stand for a byte
};

// All tokens as one.
class FuseSink : public TokenSink {
 public:
  explicit FuseSink(TokenSink* next) : next_(next) {}
  void Append(absl::string_view fragment) override { next_->Append(fragment); }
  void EndToken() override {}
  void EndText() override {
    next_->EndToken();
    next_->EndText();
  }

 private:
  TokenSink* const next_;
};

// Drops up to `start` copies of a character from a token's front and up to `stop` from its end.
// Holds back what may be the end.
class StripSink : public TokenSink {
 public:
  StripSink(TokenSink* next, std::string content, int64_t start, int64_t stop)
      : next_(next), content_(std::move(content)), start_(start), stop_(stop) {}
  void Append(absl::string_view fragment) override {
    std::string out;
    while (!fragment.empty()) {
      const absl::string_view c = fragment.substr(0, CharBytes(fragment[0]));
      fragment.remove_prefix(c.size());
      if (c == content_) {
        if (at_front_ && dropped_ < start_) {
          ++dropped_;
        } else if (held_ < stop_) {
          at_front_ = false;
          ++held_;
        } else {
          at_front_ = false;
          out += content_;
        }
        continue;
      }
      at_front_ = false;
      for (; held_ > 0; --held_) out += content_;
      absl::StrAppend(&out, c);
    }
    next_->Append(out);
  }
  void EndToken() override {
    held_ = dropped_ = 0;
    at_front_ = true;
    next_->EndToken();
  }
  void EndText() override { next_->EndText(); }

 private:
  TokenSink* const next_;
  const std::string content_;
  const int64_t start_, stop_;
  bool at_front_ = true;
  int64_t dropped_ = 0, held_ = 0;
};

// Replaces a string. Holds back what may be the beginning of it (Knuth, Morris and Pratt).
class ReplaceStringSink : public TokenSink {
 public:
  ReplaceStringSink(TokenSink* next, std::string from, std::string to)
      : next_(next), from_(std::move(from)), to_(std::move(to)), border_(from_.size() + 1, 0) {
    for (size_t i = 1, length = 0; i < from_.size(); ++i) {
      while (length > 0 && from_[i] != from_[length]) length = border_[length];
      if (from_[i] == from_[length]) ++length;
      border_[i + 1] = length;
    }
  }
  void Append(absl::string_view fragment) override {
    std::string out;
    for (const char byte : fragment) {
      while (matched_ > 0 && from_[matched_] != byte) {
        out.append(from_, 0, matched_ - border_[matched_]);
        matched_ = border_[matched_];
      }
      if (from_[matched_] != byte) {
        out.push_back(byte);
      } else if (++matched_ == from_.size()) {
        out += to_;
        matched_ = 0;
      }
    }
    next_->Append(out);
  }
  void EndToken() override {
    next_->Append(absl::string_view(from_).substr(0, matched_));
    matched_ = 0;
    next_->EndToken();
  }
  void EndText() override { next_->EndText(); }

 private:
  TokenSink* const next_;
  const std::string from_, to_;
  std::vector<size_t> border_;  // by length of a prefix: its longest proper border
  size_t matched_ = 0;
};

// Replaces what a regular expression matches. Holds back the whole token (after Fuse: the whole
// text).
class ReplaceRegexSink : public TokenSink {
 public:
  ReplaceRegexSink(TokenSink* next, Pattern pattern, std::string to)
      : next_(next), pattern_(std::move(pattern)), to_(std::move(to)) {}
  void Append(absl::string_view fragment) override { absl::StrAppend(&token_, fragment); }
  void EndToken() override {
    RegexBudget budget;
    std::vector<Span> spans;
    if (pattern_.FindAll(token_, budget, &spans).ok()) {
      for (const Span& span : spans) {
        next_->Append(span.is_match
                          ? absl::string_view(to_)
                          : absl::string_view(token_).substr(span.begin, span.end - span.begin));
      }
    } else {  // decoding has no way to fail: the token stays as it is
      next_->Append(token_);
    }
    token_.clear();
    next_->EndToken();
  }
  void EndText() override { next_->EndText(); }

 private:
  TokenSink* const next_;
  const Pattern pattern_;
  const std::string to_;
  std::string token_;
};

// The replacement character to a space, or to nothing in the first token when one was put before
// it.
class MetaspaceSink : public TokenSink {
 public:
  MetaspaceSink(TokenSink* next, std::string replacement, bool prepended)
      : next_(next), replacement_(std::move(replacement)), drops_(prepended) {}
  void Append(absl::string_view fragment) override {
    next_->Append(absl::StrReplaceAll(fragment, {{replacement_, drops_ ? "" : " "}}));
  }
  void EndToken() override {
    drops_ = false;
    next_->EndToken();
  }
  void EndText() override { next_->EndText(); }

 private:
  TokenSink* const next_;
  const std::string replacement_;
  bool drops_;
};

// The end-of-word suffix to a space, in the last token to nothing. Holds back a token.
class BpeSuffixSink : public TokenSink {
 public:
  BpeSuffixSink(TokenSink* next, std::string suffix) : next_(next), suffix_(std::move(suffix)) {}
  void Append(absl::string_view fragment) override { absl::StrAppend(&token_, fragment); }
  void EndToken() override {
    Release(" ");
    held_ = std::exchange(token_, std::string());
    holds_ = true;
  }
  void EndText() override {
    Release("");
    next_->EndText();
  }

 private:
  void Release(absl::string_view space) {
    if (!std::exchange(holds_, false)) return;
    next_->Token(absl::StrReplaceAll(held_, {{suffix_, space}}));
  }

  TokenSink* const next_;
  const std::string suffix_;
  std::string token_, held_;
  bool holds_ = false;
};

class JoinWithSpacesSink : public TokenSink {
 public:
  explicit JoinWithSpacesSink(TokenSink* next) : next_(next) {}
  void Append(absl::string_view fragment) override {
    if (std::exchange(between_, false)) next_->Append(" ");
    next_->Append(fragment);
  }
  void EndToken() override { between_ = true; }
  void EndText() override { next_->EndText(); }

 private:
  TokenSink* const next_;
  bool between_ = false;
};

}  // namespace

std::unique_ptr<DecoderStep> NewJoinWithSpaces() { return MakeStep<JoinWithSpacesSink>(); }

absl::Status ReadDecoderSteps(const JsonPart& part, int depth,
                              std::vector<std::unique_ptr<DecoderStep>>* steps) {
  constexpr int64_t kMaxStrip = int64_t{1} << 31;
  if (depth > kMaxSequenceDepth) return part.Invalid("is nested too deep");
  BH_ASSIGN_OR_RETURN(const std::string type, part.GetString("type"));
  if (type == "Sequence") {
    BH_ASSIGN_OR_RETURN(const JsonPart list, part.Get("decoders"));
    BH_ASSIGN_OR_RETURN(const std::vector<JsonPart> elements, list.Elements());
    for (const JsonPart& element : elements) {
      BH_RETURN_IF_ERROR(ReadDecoderSteps(element, depth + 1, steps));
    }
  } else if (type == "ByteLevel") {
    steps->push_back(MakeStep<ByteLevelSink>());
  } else if (type == "ByteFallback") {
    steps->push_back(MakeStep<ByteFallbackSink>());
  } else if (type == "Fuse") {
    steps->push_back(MakeStep<FuseSink>());
  } else if (type == "Strip") {
    BH_ASSIGN_OR_RETURN(std::string content, part.GetChar("content"));
    BH_ASSIGN_OR_RETURN(const int64_t start, part.GetCount("start", kMaxStrip));
    BH_ASSIGN_OR_RETURN(const int64_t stop, part.GetCount("stop", kMaxStrip));
    steps->push_back(MakeStep<StripSink>(std::move(content), start, stop));
  } else if (type == "Replace") {
    BH_ASSIGN_OR_RETURN(const JsonPart field, part.Get("pattern"));
    BH_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Read(field));
    BH_ASSIGN_OR_RETURN(std::string content, part.GetString("content"));
    if (pattern.literal().empty()) {
      steps->push_back(MakeStep<ReplaceRegexSink>(std::move(pattern), std::move(content)));
    } else {
      steps->push_back(MakeStep<ReplaceStringSink>(pattern.literal(), std::move(content)));
    }
  } else if (type == "Metaspace") {
    BH_ASSIGN_OR_RETURN(std::string replacement, part.GetChar("replacement"));
    BH_ASSIGN_OR_RETURN(const PrependScheme scheme, ReadPrependScheme(part));
    const bool prepended = scheme != PrependScheme::kNever;
    steps->push_back(MakeStep<MetaspaceSink>(std::move(replacement), prepended));
  } else if (type == "BPEDecoder") {
    BH_ASSIGN_OR_RETURN(std::string suffix, part.GetString("suffix"));
    if (suffix.empty()) return part.Unsupported("BPEDecoder with an empty suffix");
    steps->push_back(MakeStep<BpeSuffixSink>(std::move(suffix)));
  } else {
    return part.Unsupported(type);
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
