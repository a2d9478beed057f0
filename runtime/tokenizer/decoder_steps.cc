// The decoder steps. Each documents what it holds back.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/tokenizer/decoder.h"
#include "runtime/tokenizer/decoder_step_of.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/tokenizer/pre_tokenizer.h"

namespace bulkhead {
namespace {

// Joins all tokens into one.
class FuseSink : public TokenSink {
 public:
  explicit FuseSink(TokenSink* next) : next_(next) {}
  void Append(absl::string_view fragment) override { next_->Append(fragment); }
  void EndToken() override {}
  void EndText() override {
    next_->EndToken();
    next_->EndText();
  }
  void JoinAt(Place) override { next_->JoinAt(Place::kInsideToken); }

 private:
  TokenSink* const next_;
};

// Removes up to `start` copies of a character from the front of a token and up to `stop` from its
// end. Holds back what may be the end.
class StripSink : public TokenSink {
 public:
  StripSink(TokenSink* next, std::string content, int64_t start, int64_t stop)
      : next_(next), content_(std::move(content)), start_(start), stop_(stop) {}
  void Append(absl::string_view fragment) override {
    std::string out;
    while (!fragment.empty()) {
      const absl::string_view c = fragment.substr(0, CharBytes(fragment[0]));
      fragment.remove_prefix(c.size());
      if (joining_ && !Join(c)) continue;
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
    if (std::exchange(joining_, false)) next_->JoinAt(Place::kInsideToken);
    held_ = dropped_ = 0;
    at_front_ = true;
    next_->EndToken();
  }
  void EndText() override { next_->EndText(); }
  void JoinAt(Place place) override {
    joining_ = place == Place::kInsideToken;
    if (!joining_) next_->JoinAt(place);
  }

 private:
  // Whether the text from `c` on is certain: `c` is another character, or enough copies have been
  // seen that the front is over and the maximum is held back.
  bool Join(absl::string_view c) {
    if (c == content_ && held_ < start_ + stop_ + 1) {
      ++held_;
      return false;
    }
    joining_ = at_front_ = false;
    held_ = c == content_ ? stop_ : 0;
    next_->JoinAt(Place::kInsideToken);
    return true;
  }

  TokenSink* const next_;
  const std::string content_;
  const int64_t start_, stop_;
  bool at_front_ = true, joining_ = false;
  int64_t dropped_ = 0, held_ = 0;
};

// Replaces a string. Holds back a possible beginning of it (Knuth-Morris-Pratt).
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
    if (joining_) fragment = Join(fragment);
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
    if (!joining_) next_->Append(out);
  }
  void EndToken() override {
    if (std::exchange(joining_, false)) next_->JoinAt(Place::kInsideToken);
    next_->Append(absl::string_view(from_).substr(0, matched_));
    matched_ = 0;
    next_->EndToken();
  }
  void EndText() override { next_->EndText(); }
  void JoinAt(Place place) override {
    // Fragments are whole characters: part of a single one cannot have matched.
    joining_ = place == Place::kInsideToken && CharBytes(from_[0]) < from_.size();
    if (!joining_) next_->JoinAt(place);
  }

 private:
  // The part of `fragment` that is certain: from the first character that does not occur in `from`.
  absl::string_view Join(absl::string_view fragment) {
    while (!fragment.empty()) {
      const size_t size = CharBytes(fragment[0]);
      if (!absl::StrContains(from_, fragment.substr(0, size))) {
        joining_ = false;
        next_->JoinAt(Place::kInsideToken);
        break;
      }
      fragment.remove_prefix(size);
    }
    return fragment;
  }

  TokenSink* const next_;
  const std::string from_, to_;
  std::vector<size_t> border_;  // by prefix length: its longest proper border
  size_t matched_ = 0;
  bool joining_ = false;
};

// Replaces matches of a regular expression. Holds back the whole token (after Fuse: the whole
// text).
class ReplaceRegexSink : public TokenSink {
 public:
  ReplaceRegexSink(TokenSink* next, Pattern pattern, std::string to)
      : next_(next), pattern_(std::move(pattern)), to_(std::move(to)) {}
  void Append(absl::string_view fragment) override { absl::StrAppend(&token_, fragment); }
  void EndToken() override {
    if (std::exchange(joining_, false)) {
      token_.clear();
      next_->JoinAt(Place::kInsideToken);
      next_->EndToken();
      return;
    }
    RegexBudget budget;
    std::vector<Span> spans;
    if (pattern_.FindAll(token_, budget, &spans).ok()) {
      for (const Span& span : spans) {
        next_->Append(span.is_match
                          ? absl::string_view(to_)
                          : absl::string_view(token_).substr(span.begin, span.end - span.begin));
      }
    } else {  // decoding cannot fail: the token is kept unchanged
      next_->Append(token_);
    }
    token_.clear();
    next_->EndToken();
  }
  void EndText() override { next_->EndText(); }
  void JoinAt(Place place) override {
    joining_ = place == Place::kInsideToken;
    if (!joining_) next_->JoinAt(place);
  }

 private:
  TokenSink* const next_;
  const Pattern pattern_;
  const std::string to_;
  std::string token_;
  bool joining_ = false;
};

// Maps the replacement character to a space, or removes it from the first token if one was
// prepended.
class MetaspaceSink : public TokenSink {
 public:
  MetaspaceSink(TokenSink* next, std::string replacement, bool prepended)
      : next_(next), replacement_(std::move(replacement)), drops_(prepended) {}
  void Append(absl::string_view fragment) override {
    if (joining_) return;
    next_->Append(absl::StrReplaceAll(fragment, {{replacement_, drops_ ? "" : " "}}));
  }
  void EndToken() override {
    if (std::exchange(joining_, false)) next_->JoinAt(Place::kInsideToken);
    drops_ = false;
    next_->EndToken();
  }
  void EndText() override { next_->EndText(); }
  void JoinAt(Place place) override {
    joining_ = drops_;  // the first token may or may not have ended
    if (!joining_) next_->JoinAt(place);
  }

 private:
  TokenSink* const next_;
  const std::string replacement_;
  bool drops_;
  bool joining_ = false;
};

// Maps the end-of-word suffix to a space, and removes it from the last token. Holds back one token.
class BpeSuffixSink : public TokenSink {
 public:
  BpeSuffixSink(TokenSink* next, std::string suffix) : next_(next), suffix_(std::move(suffix)) {}
  void Append(absl::string_view fragment) override { absl::StrAppend(&token_, fragment); }
  void EndToken() override {
    if (joining_ && !std::exchange(inside_, false)) {
      joining_ = false;
      next_->JoinAt(Place::kBetweenTokens);
    }
    Release(" ");
    held_ = std::exchange(token_, std::string());
    holds_ = !joining_;
  }
  void EndText() override {
    Release("");
    next_->EndText();
  }
  void JoinAt(Place place) override {
    joining_ = true;
    inside_ = place == Place::kInsideToken;
  }

 private:
  void Release(absl::string_view space) {
    if (!std::exchange(holds_, false)) return;
    next_->Token(absl::StrReplaceAll(held_, {{suffix_, space}}));
  }

  TokenSink* const next_;
  const std::string suffix_;
  std::string token_, held_;
  bool holds_ = false, joining_ = false, inside_ = false;
};

class JoinWithSpacesSink : public TokenSink {
 public:
  explicit JoinWithSpacesSink(TokenSink* next) : next_(next) {}
  void Append(absl::string_view fragment) override {
    if (joining_) return;
    if (std::exchange(between_, false)) next_->Append(" ");
    next_->Append(fragment);
  }
  void EndToken() override {
    if (std::exchange(joining_, false)) next_->JoinAt(Place::kInsideToken);
    between_ = true;
  }
  void EndText() override { next_->EndText(); }
  void JoinAt(Place) override { joining_ = true; }

 private:
  TokenSink* const next_;
  bool between_ = false, joining_ = false;
};

}  // namespace

std::unique_ptr<DecoderStep> NewJoinWithSpaces() { return MakeStep<JoinWithSpacesSink>(); }

absl::Status ReadDecoderSteps(const JsonPart& part, int depth,
                              std::vector<std::unique_ptr<DecoderStep>>* steps, double* growth) {
  constexpr int64_t kMaxStrip = int64_t{1} << 31;
  constexpr size_t kMaxSteps = 64;  // each calls the next one
  if (depth > kMaxSequenceDepth) return part.Invalid("is nested too deep");
  if (steps->size() == kMaxSteps) {
    return part.Invalid(absl::StrCat("is one too many: the limit is ", kMaxSteps, " steps"));
  }
  BH_ASSIGN_OR_RETURN(const std::string type, part.GetString("type"));
  if (type == "Sequence") {
    BH_ASSIGN_OR_RETURN(const JsonPart list, part.Get("decoders"));
    BH_ASSIGN_OR_RETURN(const std::vector<JsonPart> elements, list.Elements());
    for (const JsonPart& element : elements) {
      BH_RETURN_IF_ERROR(ReadDecoderSteps(element, depth + 1, steps, growth));
    }
  } else if (type == "ByteLevel") {
    steps->push_back(NewByteLevelDecoder());
  } else if (type == "ByteFallback") {
    steps->push_back(NewByteFallbackDecoder());
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
    const double size = static_cast<double>(content.size());
    // A regular expression may match between any two bytes.
    *growth *= pattern.literal().empty()
                   ? 1 + size
                   : std::max(1.0, size / static_cast<double>(pattern.literal().size()));
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
