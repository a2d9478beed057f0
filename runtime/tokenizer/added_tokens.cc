#include "runtime/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {
namespace {

// Their automata take about 115 bytes for each; published tokenizers have some tens of KiB.
constexpr size_t kMaxBytes = size_t{4} << 20;

absl::Status CheckBytes(const JsonPart& part, size_t bytes, absl::string_view what) {
  if (bytes <= kMaxBytes) return absl::OkStatus();
  return part.Invalid(absl::StrCat("has tokens of ", bytes, " bytes", what, " in all; at most ",
                                   kMaxBytes, " are supported: remove some, or shorten them"));
}

absl::StatusOr<AddedToken> ReadToken(const JsonPart& part) {
  AddedToken token;
  BH_RETURN_IF_ERROR(part.GetCount("id", kMaxTokenId).status());
  BH_ASSIGN_OR_RETURN(token.content, part.GetString("content"));
  BH_ASSIGN_OR_RETURN(token.single_word, part.GetBool("single_word"));
  BH_ASSIGN_OR_RETURN(token.lstrip, part.GetBool("lstrip"));
  BH_ASSIGN_OR_RETURN(token.rstrip, part.GetBool("rstrip"));
  BH_ASSIGN_OR_RETURN(token.normalized, part.GetBool("normalized"));
  BH_ASSIGN_OR_RETURN(token.special, part.GetBool("special"));
  return token;
}

bool IsWholeWord(absl::string_view text, size_t begin, size_t end) {
  size_t position;
  if (begin > 0 && IsWordChar(PreviousChar(text, begin, &position))) return false;
  position = end;
  return end == text.size() || !IsWordChar(NextChar(text, &position));
}

size_t SpacesBefore(absl::string_view text, size_t end, size_t least) {
  size_t begin = end;
  while (begin > least) {
    size_t previous;
    if (!IsWhitespace(PreviousChar(text, begin, &previous))) break;
    begin = previous;
  }
  return begin;
}

size_t SpacesAfter(absl::string_view text, size_t begin) {
  size_t end = begin;
  for (size_t position = begin; position < text.size(); end = position) {
    if (!IsWhitespace(NextChar(text, &position))) break;
  }
  return end;
}

}  // namespace

absl::StatusOr<AddedTokens> AddedTokens::Read(
    const JsonPart& part, int32_t model_size,
    const std::function<std::optional<int32_t>(absl::string_view)>& model_id,
    const Normalizer& normalizer) {
  AddedTokens added;
  if (part.is_null()) return added;
  BH_ASSIGN_OR_RETURN(const std::vector<JsonPart> elements, part.Elements());
  std::vector<AddedToken> read;
  size_t bytes = 0;
  for (const JsonPart& element : elements) {
    BH_ASSIGN_OR_RETURN(AddedToken token, ReadToken(element));
    bytes += token.content.size();
    read.push_back(std::move(token));
  }
  BH_RETURN_IF_ERROR(CheckBytes(part, bytes, ""));
  EncodeBudget budget(bytes);                         // for all parts together
  absl::flat_hash_map<std::string, size_t> index_of;  // by content
  int32_t next_id = model_size;
  for (size_t i = 0; i < elements.size(); ++i) {
    AddedToken& token = read[i];
    if (token.content.empty()) continue;
    const auto [known, is_new] = index_of.try_emplace(token.content, added.tokens_.size());
    if (!is_new) {
      token.id = added.tokens_[known->second].id;
    } else {
      const std::optional<int32_t> id = model_id(token.content);
      token.id = id.has_value() ? *id : next_id++;
    }
    if (token.id >= kMaxTokenId) return elements[i].Invalid("is one token too many");
    token.matched = token.content;
    if (token.normalized && !normalizer.empty()) {
      AlignedText text{token.content, {}};
      const absl::Status status = normalizer.Normalize(budget, &text);
      if (!status.ok()) return elements[i].Wrap(status);
      token.matched = std::move(text.text);
    }
    if (is_new) {
      added.tokens_.push_back(std::move(token));
    } else {
      added.tokens_[known->second] = std::move(token);
    }
  }
  std::vector<std::string> patterns[2];
  bytes = 0;
  for (size_t i = 0; i < added.tokens_.size(); ++i) {
    const AddedToken& token = added.tokens_[i];
    bytes += token.matched.size();
    added.matchers_[token.normalized].tokens.push_back(static_cast<int>(i));
    patterns[token.normalized].push_back(token.matched);
  }
  BH_RETURN_IF_ERROR(CheckBytes(part, bytes, ", normalised,"));
  for (int stage = 0; stage < 2; ++stage) {
    added.matchers_[stage].automaton = std::make_shared<AhoCorasick>(patterns[stage]);
  }
  return added;
}

std::vector<AddedTokens::Segment> AddedTokens::Cut(Stage stage, absl::string_view text) const {
  std::vector<Segment> segments;
  const Matcher& matcher = matchers_[stage == Stage::kNormalized];
  size_t covered = 0;
  if (matcher.automaton != nullptr && !matcher.automaton->empty()) {
    AhoCorasick::Found found;
    for (size_t from = 0; matcher.automaton->FindLeftmostLongest(text, from, &found);) {
      from = found.end;
      const AddedToken& token = tokens_[matcher.tokens[found.pattern]];
      size_t begin = found.begin, end = found.end;
      if (token.single_word && !IsWholeWord(text, begin, end)) continue;
      if (token.lstrip) {
        begin = std::max(covered, SpacesBefore(text, begin, std::min(begin, covered)));
      }
      if (token.rstrip) end = SpacesAfter(text, end);
      if (begin >= end)
        continue;  // its spaces were consumed by the previous token, and there was
                   // nothing else
      if (covered < begin) segments.push_back({covered, begin, nullptr});
      segments.push_back({begin, end, &token});
      covered = end;
    }
  }
  if (covered < text.size()) segments.push_back({covered, text.size(), nullptr});
  return segments;
}

}  // namespace bulkhead
