#include "runtime/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {
namespace {

constexpr absl::string_view kByteLevelRegex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Prepends `prefix` to a piece; it counts as originating from the piece's first character.
Origin WithPrefix(absl::string_view view, Origin origin, absl::string_view prefix,
                  BoundedText* out) {
  out->Append(prefix);
  out->Append(view);
  if (origin.first_bytes > 0) origin.first_bytes += prefix.size();
  return origin;
}

class ByteLevel : public PreTokenizerStep {
 public:
  ByteLevel(bool add_prefix_space, std::unique_ptr<const Regex> regex)
      : add_prefix_space_(add_prefix_space), regex_(std::move(regex)) {}
  absl::Status Apply(EncodeBudget& budget, TextPieces* pieces) const override {
    if (add_prefix_space_) {
      BH_RETURN_IF_ERROR(pieces->Transform(
          budget.pre_tokenized, [](absl::string_view view, const Origin& origin, BoundedText* out) {
            return WithPrefix(view, origin, absl::StartsWith(view, " ") ? "" : " ", out);
          }));
    }
    if (regex_ != nullptr) {
      BH_RETURN_IF_ERROR(pieces->Split(SplitBehavior::kIsolated,
                                       [&](absl::string_view view, std::vector<Span>* spans) {
                                         return regex_->FindAll(view, budget.regex, spans);
                                       }));
    }
    return pieces->Transform(budget.pre_tokenized,
                             [](absl::string_view view, Origin origin, BoundedText* out) {
                               const size_t begin = out->size();
                               size_t first_bytes = 0;
                               for (size_t i = 0; i < view.size(); ++i) {
                                 out->Append(ByteLevelChar(static_cast<uint8_t>(view[i])));
                                 if (i < origin.first_bytes) first_bytes = out->size() - begin;
                               }
                               origin.first_bytes = first_bytes;
                               return origin;
                             });
  }
  bool makes_byte_characters(bool /*before*/) const override { return true; }

 private:
  const bool add_prefix_space_;
  const std::unique_ptr<const Regex> regex_;  // null: not split
};

class Split : public PreTokenizerStep {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  absl::Status Apply(EncodeBudget& budget, TextPieces* pieces) const override {
    return pieces->Split(behavior_, [&](absl::string_view view, std::vector<Span>* spans) {
      BH_RETURN_IF_ERROR(pattern_.FindAll(view, budget.regex, spans));
      if (invert_) {
        for (Span& span : *spans) span.is_match = !span.is_match;
      }
      return absl::OkStatus();
    });
  }
  bool removes_text() const override { return behavior_ == SplitBehavior::kRemoved; }

 private:
  const Pattern pattern_;
  const SplitBehavior behavior_;
  const bool invert_;
};

// Splits at the characters of a class.
class SplitChars : public PreTokenizerStep {
 public:
  SplitChars(bool (*is_match)(char32_t), SplitBehavior behavior)
      : is_match_(is_match), behavior_(behavior) {}
  absl::Status Apply(EncodeBudget&, TextPieces* pieces) const override {
    return pieces->Split(behavior_, [&](absl::string_view view, std::vector<Span>* spans) {
      FindChars(view, is_match_, spans);
      return absl::OkStatus();
    });
  }
  bool removes_text() const override { return behavior_ == SplitBehavior::kRemoved; }

 private:
  bool (*const is_match_)(char32_t);
  const SplitBehavior behavior_;
};

// Runs of word characters, and runs of characters that are neither word characters nor white space.
class Whitespace : public PreTokenizerStep {
 public:
  absl::Status Apply(EncodeBudget&, TextPieces* pieces) const override {
    enum Kind { kWord, kSpace, kOther };
    const auto kind_of = [](char32_t c) {
      return IsWordChar(c) ? kWord : IsWhitespace(c) ? kSpace : kOther;
    };
    return pieces->Split(SplitBehavior::kRemoved,
                         [&](absl::string_view view, std::vector<Span>* spans) {
                           Kind kind = kSpace;
                           for (size_t position = 0; position < view.size();) {
                             const size_t begin = position;
                             const Kind next = kind_of(NextChar(view, &position));
                             if (begin == 0 || next != kind)
                               spans->push_back({begin, begin, next == kSpace});
                             spans->back().end = position;
                             kind = next;
                           }
                           return absl::OkStatus();
                         });
  }
  bool removes_text() const override { return true; }
};

class Metaspace : public PreTokenizerStep {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}
  absl::Status Apply(EncodeBudget& budget, TextPieces* pieces) const override {
    BH_RETURN_IF_ERROR(pieces->Transform(
        budget.pre_tokenized, [this](absl::string_view view, const Origin& origin,
                                     BoundedText* out) { return Rewrite(view, origin, out); }));
    if (!split_) return absl::OkStatus();
    const Pattern pattern = Pattern::Literal(replacement_);
    return pieces->Split(SplitBehavior::kMergedWithNext,
                         [&](absl::string_view view, std::vector<Span>* spans) {
                           return pattern.FindAll(view, budget.regex, spans);
                         });
  }
  bool makes_byte_characters(bool /*before*/) const override { return false; }

 private:
  Origin Rewrite(absl::string_view view, const Origin& origin, BoundedText* out) const {
    const size_t begin = out->size();
    const bool marked = absl::StartsWith(view, " ") || absl::StartsWith(view, replacement_);
    const bool prepends = !marked && (scheme_ == PrependScheme::kAlways ||
                                      (scheme_ == PrependScheme::kFirst && origin.at_start));
    if (prepends) out->Append(replacement_);
    Origin result = origin;
    for (size_t i = 0; i < view.size(); ++i) {
      if (i == origin.first_bytes) result.first_bytes = i == 0 ? 0 : out->size() - begin;
      out->Append(view[i] == ' ' ? absl::string_view(replacement_) : view.substr(i, 1));
    }
    if (origin.first_bytes >= view.size()) result.first_bytes = out->size() - begin;
    return result;
  }

  const std::string replacement_;
  const PrependScheme scheme_;
  const bool split_;
};

absl::StatusOr<SplitBehavior> ReadBehavior(const JsonPart& part) {
  BH_ASSIGN_OR_RETURN(const std::string name, part.GetString("behavior"));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return part.Unsupported(absl::StrCat("behavior \"", name, "\""));
}

using Steps = std::vector<std::unique_ptr<PreTokenizerStep>>;

absl::Status ReadByteLevel(const JsonPart& part, Steps* steps) {
  BH_ASSIGN_OR_RETURN(const bool prefix, part.GetBool("add_prefix_space"));
  BH_ASSIGN_OR_RETURN(const bool use_regex, part.GetBool("use_regex", true));
  std::unique_ptr<Regex> regex;
  if (use_regex) {
    BH_ASSIGN_OR_RETURN(regex, Regex::Compile(kByteLevelRegex));
  }
  steps->push_back(std::make_unique<ByteLevel>(prefix, std::move(regex)));
  return absl::OkStatus();
}

absl::Status ReadSplit(const JsonPart& part, Steps* steps) {
  BH_ASSIGN_OR_RETURN(const JsonPart field, part.Get("pattern"));
  BH_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Read(field));
  BH_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(part));
  BH_ASSIGN_OR_RETURN(const bool invert, part.GetBool("invert"));
  steps->push_back(std::make_unique<Split>(std::move(pattern), behavior, invert));
  return absl::OkStatus();
}

absl::Status ReadMetaspace(const JsonPart& part, Steps* steps) {
  BH_ASSIGN_OR_RETURN(std::string replacement, part.GetChar("replacement"));
  BH_ASSIGN_OR_RETURN(const PrependScheme scheme, ReadPrependScheme(part));
  BH_ASSIGN_OR_RETURN(const bool split, part.GetBool("split", true));
  steps->push_back(std::make_unique<Metaspace>(std::move(replacement), scheme, split));
  return absl::OkStatus();
}

absl::Status ReadStep(const JsonPart& part, int depth, Steps* steps) {
  if (depth > kMaxSequenceDepth) return part.Invalid("is nested too deep");
  BH_ASSIGN_OR_RETURN(const std::string type, part.GetString("type"));
  if (type == "ByteLevel") return ReadByteLevel(part, steps);
  if (type == "Split") return ReadSplit(part, steps);
  if (type == "Metaspace") return ReadMetaspace(part, steps);
  if (type == "Sequence") {
    BH_ASSIGN_OR_RETURN(const JsonPart list, part.Get("pretokenizers"));
    BH_ASSIGN_OR_RETURN(const std::vector<JsonPart> elements, list.Elements());
    for (const JsonPart& element : elements) {
      BH_RETURN_IF_ERROR(ReadStep(element, depth + 1, steps));
    }
  } else if (type == "Digits") {
    BH_ASSIGN_OR_RETURN(const bool individual, part.GetBool("individual_digits"));
    steps->push_back(std::make_unique<SplitChars>(
        IsNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  } else if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (part.Find("behavior").has_value()) {
      BH_ASSIGN_OR_RETURN(behavior, ReadBehavior(part));
    }
    steps->push_back(std::make_unique<SplitChars>(IsPunctuation, behavior));
  } else if (type == "Whitespace") {
    steps->push_back(std::make_unique<Whitespace>());
  } else if (type == "WhitespaceSplit" || type == "BertPreTokenizer") {
    steps->push_back(std::make_unique<SplitChars>(IsWhitespace, SplitBehavior::kRemoved));
    if (type == "BertPreTokenizer") {
      steps->push_back(std::make_unique<SplitChars>(IsPunctuation, SplitBehavior::kIsolated));
    }
  } else {
    return part.Unsupported(type);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PrependScheme> ReadPrependScheme(const JsonPart& part) {
  BH_ASSIGN_OR_RETURN(const bool add_prefix_space, part.GetBool("add_prefix_space", true));
  const std::optional<JsonPart> field = part.Find("prepend_scheme");
  if (!field.has_value()) {
    return add_prefix_space ? PrependScheme::kAlways : PrependScheme::kNever;
  }
  BH_ASSIGN_OR_RETURN(const std::string name, field->AsString());
  if (name == "never") return PrependScheme::kNever;
  if (name != "always" && name != "first") {
    return part.Unsupported(absl::StrCat("prepend_scheme \"", name, "\""));
  }
  if (!add_prefix_space) return part.Invalid("has an add_prefix_space that denies prepend_scheme");
  return name == "always" ? PrependScheme::kAlways : PrependScheme::kFirst;
}

absl::StatusOr<PreTokenizer> PreTokenizer::Read(const JsonPart& part) {
  PreTokenizer pre_tokenizer;
  if (!part.is_null()) BH_RETURN_IF_ERROR(ReadStep(part, 0, &pre_tokenizer.steps_));
  return pre_tokenizer;
}

bool PreTokenizer::removes_text() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const auto& step) { return step->removes_text(); });
}

bool PreTokenizer::makes_byte_characters() const {
  bool made = false;
  for (const auto& step : steps_) made = step->makes_byte_characters(made);
  return made;
}

absl::Status PreTokenizer::PreTokenize(EncodeBudget& budget, TextPieces* pieces) const {
  size_t longest = pieces->text().size();
  BH_RETURN_IF_ERROR(budget.pre_tokenized.Check(longest));
  for (const std::unique_ptr<PreTokenizerStep>& step : steps_) {
    BH_RETURN_IF_ERROR(step->Apply(budget, pieces));
    longest = std::max(longest, pieces->text().size());
  }
  budget.pre_tokenized.Use(longest);
  return absl::OkStatus();
}

}  // namespace bulkhead
