#include "runtime/tokenizer/decoder.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {
namespace {

using Tokens = Decoder::Tokens;

// Stands before a part that is not the first, so that what is done to the first token or to the
// beginning of the text is not done to the part.
constexpr absl::string_view kBefore = "a";

void Fuse(Tokens& tokens) {
  std::string text = absl::StrJoin(tokens, "");
  tokens.assign(1, std::move(text));
}

// Characters of the byte-level alphabet to bytes, bytes to text. A token with any other character
// is taken as it is.
void DecodeByteLevel(Tokens& tokens) {
  std::string all, bytes;
  for (const std::string& token : tokens) all += ByteLevelToBytes(token, &bytes) ? bytes : token;
  tokens.assign(1, RepairUtf8(all));
}

// The byte of a token like <0xE4>.
std::optional<uint8_t> ByteOf(absl::string_view token) {
  if (token.size() != 6 || !absl::StartsWith(token, "<0x") || token[5] != '>') return std::nullopt;
  absl::string_view digits = token.substr(3, 2);
  if (digits[0] == '+') digits.remove_prefix(1);  // the reference's parser takes a sign
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return byte;
}

// A run of byte tokens becomes one token of text, or, when it is not UTF-8 as a whole, a token
// U+FFFD for each.
void DecodeBytes(Tokens& tokens) {
  Tokens out;
  std::string run;
  const auto end_run = [&] {
    if (IsValidUtf8(run)) {
      if (!run.empty()) out.push_back(run);
    } else {
      out.insert(out.end(), run.size(), std::string(kReplacementChar));
    }
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const std::optional<uint8_t> byte = ByteOf(token); byte.has_value()) {
      run.push_back(static_cast<char>(*byte));
      continue;
    }
    end_run();
    out.push_back(std::move(token));
  }
  end_run();
  tokens = std::move(out);
}

void JoinWithSpaces(Tokens& tokens) {
  std::string text = absl::StrJoin(tokens, " ");
  tokens.assign(1, std::move(text));
}

// Drops up to `start` copies of `content` from the front and up to `stop` from the end.
void Strip(absl::string_view content, int64_t start, int64_t stop, std::string& token) {
  absl::string_view rest = token;
  while (start-- > 0 && absl::StartsWith(rest, content)) rest.remove_prefix(content.size());
  while (stop-- > 0 && absl::EndsWith(rest, content)) rest.remove_suffix(content.size());
  token = std::string(rest);
}

void ReplaceMatches(const Pattern& pattern, absl::string_view content, std::string& token) {
  if (!pattern.literal().empty()) {
    absl::StrReplaceAll({{pattern.literal(), content}}, &token);
    return;
  }
  RegexBudget budget;
  std::vector<Span> spans;
  // Decoding has no way to fail: a token at a limit of matching stays as it is.
  if (!pattern.FindAll(token, budget, &spans).ok()) return;
  std::string out;
  for (const Span& span : spans) {
    absl::StrAppend(&out, span.is_match
                              ? content
                              : absl::string_view(token).substr(span.begin, span.end - span.begin));
  }
  token = std::move(out);
}

}  // namespace

void Decoder::AddForEach(std::function<void(std::string&)> change) {
  steps_.push_back([change = std::move(change)](Tokens& tokens) {
    for (std::string& token : tokens) change(token);
  });
}

absl::Status Decoder::ReadReplace(const JsonPart& part) {
  BH_ASSIGN_OR_RETURN(const JsonPart field, part.Get("pattern"));
  BH_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Read(field));
  BH_ASSIGN_OR_RETURN(std::string content, part.GetString("content"));
  // More than a character may lie in two parts of a joined text.
  const std::string& literal = pattern.literal();
  in_parts_ &= !joined_ || (!literal.empty() && CharBytes(literal[0]) == literal.size());
  AddForEach([pattern = std::move(pattern), content = std::move(content)](std::string& token) {
    ReplaceMatches(pattern, content, token);
  });
  return absl::OkStatus();
}

absl::Status Decoder::ReadStep(const JsonPart& part) {
  constexpr int64_t kMaxStrip = int64_t{1} << 31;
  BH_ASSIGN_OR_RETURN(const std::string type, part.GetString("type"));
  if (type == "Sequence") {
    BH_ASSIGN_OR_RETURN(const JsonPart list, part.Get("decoders"));
    BH_ASSIGN_OR_RETURN(const std::vector<JsonPart> elements, list.Elements());
    for (const JsonPart& element : elements) BH_RETURN_IF_ERROR(ReadStep(element));
  } else if (type == "ByteLevel") {
    in_parts_ &= !joined_;
    joined_ = true;
    steps_.push_back(DecodeByteLevel);
  } else if (type == "ByteFallback") {
    in_parts_ &= !joined_ && bytes_step_ == SIZE_MAX;
    bytes_step_ = steps_.size();
    steps_.push_back(DecodeBytes);
  } else if (type == "Fuse") {
    joined_ = true;
    steps_.push_back(Fuse);
  } else if (type == "Strip") {
    BH_ASSIGN_OR_RETURN(std::string content, part.GetChar("content"));
    BH_ASSIGN_OR_RETURN(const int64_t start, part.GetCount("start", kMaxStrip));
    BH_ASSIGN_OR_RETURN(const int64_t stop, part.GetCount("stop", kMaxStrip));
    in_parts_ &= !joined_ || stop == 0;
    AddForEach([content = std::move(content), start, stop](std::string& token) {
      Strip(content, start, stop, token);
    });
  } else if (type == "Replace") {
    return ReadReplace(part);
  } else if (type == "Metaspace") {
    BH_ASSIGN_OR_RETURN(const std::string replacement, part.GetChar("replacement"));
    BH_ASSIGN_OR_RETURN(const PrependScheme scheme, ReadPrependScheme(part));
    // In the first token to nothing when one was put before it.
    steps_.push_back([replacement, prepended = scheme != PrependScheme::kNever](Tokens& tokens) {
      for (size_t i = 0; i < tokens.size(); ++i) {
        absl::StrReplaceAll({{replacement, i == 0 && prepended ? "" : " "}}, &tokens[i]);
      }
    });
  } else if (type == "BPEDecoder") {
    BH_ASSIGN_OR_RETURN(const std::string suffix, part.GetString("suffix"));
    if (suffix.empty()) return part.Unsupported("BPEDecoder with an empty suffix");
    in_parts_ = false;  // the last token's suffix becomes nothing
    steps_.push_back([suffix](Tokens& tokens) {
      for (size_t i = 0; i < tokens.size(); ++i) {
        absl::StrReplaceAll({{suffix, i + 1 == tokens.size() ? "" : " "}}, &tokens[i]);
      }
    });
  } else {
    return part.Unsupported(type);
  }
  return absl::OkStatus();
}

absl::StatusOr<Decoder> Decoder::Read(const JsonPart& part) {
  Decoder decoder;
  if (part.is_null()) {
    decoder.steps_.push_back(JoinWithSpaces);
  } else {
    BH_RETURN_IF_ERROR(decoder.ReadStep(part));
  }
  decoder.in_parts_ &= decoder.Decode({std::string(kBefore)}) == kBefore;
  return decoder;
}

std::string Decoder::Decode(Tokens tokens, bool first) const {
  if (!first) tokens.insert(tokens.begin(), std::string(kBefore));
  for (const Step& step : steps_) step(tokens);
  std::string text = absl::StrJoin(tokens, "");
  if (!first) text.erase(0, kBefore.size());
  return text;
}

bool Decoder::EndsOpen(const std::string& token) const {
  if (bytes_step_ == SIZE_MAX) return false;
  Tokens tokens = {std::string(kBefore), token};
  for (size_t i = 0; i < bytes_step_; ++i) steps_[i](tokens);
  return ByteOf(tokens.back()).has_value();
}

}  // namespace bulkhead
