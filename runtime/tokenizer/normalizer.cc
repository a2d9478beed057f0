#include "runtime/tokenizer/normalizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {
namespace {

// Rewrites character by character: `append(c, &out)` appends the replacement of `c`, at least one
// byte.
template <typename AppendChar>
absl::Status RewriteChars(const Allowance& allowance, AlignedText* text, AppendChar append) {
  BoundedText out(allowance);
  out.Reserve(text->text.size());
  size_t first_bytes = 0;
  std::string rewritten;
  for (size_t position = 0; position < text->text.size();) {
    const bool first = position < text->origin.first_bytes;
    rewritten.clear();
    append(NextChar(text->text, &position), &rewritten);
    out.Append(rewritten);
    if (first) first_bytes = out.size();
  }
  BH_RETURN_IF_ERROR(out.status());
  text->text = out.Take();
  text->origin.first_bytes = first_bytes;
  return absl::OkStatus();
}

class UnicodeForm : public NormalizerStep {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  absl::Status Apply(EncodeBudget& budget, AlignedText* text) const override {
    BH_ASSIGN_OR_RETURN(std::string out, FormOf(budget.normalized, text->text));
    const size_t first_bytes = text->origin.first_bytes;
    if (first_bytes > 0 && !out.empty()) {
      BH_ASSIGN_OR_RETURN(
          const std::string first,
          FormOf(budget.normalized, absl::string_view(text->text).substr(0, first_bytes)));
      size_t size = std::min(std::max(first.size(), CharBytes(out[0])), out.size());
      while (!IsCharBoundary(out, size)) ++size;
      text->origin.first_bytes = size;
    }
    text->text = std::move(out);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::string> FormOf(const Allowance& allowance, absl::string_view text) const {
    BoundedText out(allowance);
    BH_RETURN_IF_ERROR(
        NormalizeUnicode(form_, text, [&out](absl::string_view part) { out.Append(part); }));
    BH_RETURN_IF_ERROR(out.status());
    return out.Take();
  }

  const NormalForm form_;
};

class Lowercase : public NormalizerStep {
 public:
  absl::Status Apply(EncodeBudget& budget, AlignedText* text) const override {
    return RewriteChars(budget.normalized, text,
                        [](char32_t c, std::string* out) { AppendLowercase(c, out); });
  }
};

class StripAccents : public NormalizerStep {
 public:
  absl::Status Apply(EncodeBudget& budget, AlignedText* text) const override {
    return RewriteChars(budget.normalized, text, [](char32_t c, std::string* out) {
      if (!IsCombiningMark(c)) AppendUtf8(c, out);
    });
  }
};

class ByteLevelCharacters : public NormalizerStep {
 public:
  absl::Status Apply(EncodeBudget& budget, AlignedText* text) const override {
    return RewriteChars(budget.normalized, text, [](char32_t c, std::string* out) {
      std::string bytes;
      AppendUtf8(c, &bytes);
      for (const char byte : bytes) absl::StrAppend(out, ByteLevelChar(static_cast<uint8_t>(byte)));
    });
  }
  bool keeps_length() const override { return true; }
};

class Strip : public NormalizerStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  absl::Status Apply(EncodeBudget&, AlignedText* text) const override {
    const absl::string_view view = text->text;
    size_t begin = 0, end = view.size();
    for (size_t position = 0; left_ && position < end; begin = position) {
      if (!IsWhitespace(NextChar(view, &position))) break;
    }
    while (right_ && end > begin) {
      size_t last;
      if (!IsWhitespace(PreviousChar(view, end, &last))) break;
      end = last;
    }
    text->origin.first_bytes = std::min(end, std::max(begin, text->origin.first_bytes)) - begin;
    text->text = text->text.substr(begin, end - begin);
    return absl::OkStatus();
  }

 private:
  const bool left_, right_;
};

class Prepend : public NormalizerStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  absl::Status Apply(EncodeBudget& budget, AlignedText* text) const override {
    if (text->text.empty()) return absl::OkStatus();
    BH_RETURN_IF_ERROR(budget.normalized.Check(prefix_.size() + text->text.size()));
    text->text.insert(0, prefix_);
    if (text->origin.first_bytes > 0) text->origin.first_bytes += prefix_.size();
    return absl::OkStatus();
  }
  bool keeps_length() const override { return true; }

 private:
  const std::string prefix_;
};

class Replace : public NormalizerStep {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::Status Apply(EncodeBudget& budget, AlignedText* text) const override {
    if (text->text.empty()) return absl::OkStatus();
    std::vector<Span> spans;
    BH_RETURN_IF_ERROR(pattern_.FindAll(text->text, budget.regex, &spans));
    BoundedText out(budget.normalized);
    out.Reserve(text->text.size());
    const size_t old_first = text->origin.first_bytes;
    size_t first_bytes = 0;
    for (const Span& span : spans) {
      if (span.is_match) {
        out.Append(content_);
        // A replacement originates from the last character of its match, or from nothing at the
        // front.
        if (span.end == 0 || span.end <= old_first) first_bytes = out.size();
      } else {
        if (span.begin < old_first) {
          first_bytes = out.size() + std::min(span.end, old_first) - span.begin;
        }
        out.Append(absl::string_view(text->text).substr(span.begin, span.end - span.begin));
      }
    }
    BH_RETURN_IF_ERROR(out.status());
    text->text = out.Take();
    text->origin.first_bytes = first_bytes;
    return absl::OkStatus();
  }
  bool keeps_length() const override {
    return !pattern_.literal().empty() && content_.size() >= pattern_.literal().size();
  }

 private:
  const Pattern pattern_;
  const std::string content_;
};

using Steps = std::vector<std::unique_ptr<NormalizerStep>>;

absl::Status ReadStep(const JsonPart& part, int depth, Steps* steps) {
  if (depth > kMaxSequenceDepth) return part.Invalid("is nested too deep");
  BH_ASSIGN_OR_RETURN(const std::string type, part.GetString("type"));
  if (type == "Sequence") {
    BH_ASSIGN_OR_RETURN(const JsonPart list, part.Get("normalizers"));
    BH_ASSIGN_OR_RETURN(const std::vector<JsonPart> elements, list.Elements());
    for (const JsonPart& element : elements) {
      BH_RETURN_IF_ERROR(ReadStep(element, depth + 1, steps));
    }
  } else if (type == "NFC") {
    steps->push_back(std::make_unique<UnicodeForm>(NormalForm::kNfc));
  } else if (type == "NFD") {
    steps->push_back(std::make_unique<UnicodeForm>(NormalForm::kNfd));
  } else if (type == "NFKC") {
    steps->push_back(std::make_unique<UnicodeForm>(NormalForm::kNfkc));
  } else if (type == "NFKD") {
    steps->push_back(std::make_unique<UnicodeForm>(NormalForm::kNfkd));
  } else if (type == "Lowercase") {
    steps->push_back(std::make_unique<Lowercase>());
  } else if (type == "StripAccents") {
    steps->push_back(std::make_unique<StripAccents>());
  } else if (type == "ByteLevel") {
    steps->push_back(std::make_unique<ByteLevelCharacters>());
  } else if (type == "Strip") {
    BH_ASSIGN_OR_RETURN(const bool left, part.GetBool("strip_left"));
    BH_ASSIGN_OR_RETURN(const bool right, part.GetBool("strip_right"));
    steps->push_back(std::make_unique<Strip>(left, right));
  } else if (type == "Prepend") {
    BH_ASSIGN_OR_RETURN(std::string prefix, part.GetString("prepend"));
    steps->push_back(std::make_unique<Prepend>(std::move(prefix)));
  } else if (type == "Replace") {
    BH_ASSIGN_OR_RETURN(const JsonPart field, part.Get("pattern"));
    BH_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Read(field));
    BH_ASSIGN_OR_RETURN(std::string content, part.GetString("content"));
    steps->push_back(std::make_unique<Replace>(std::move(pattern), std::move(content)));
  } else {
    return part.Unsupported(type);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::Read(const JsonPart& part) {
  Normalizer normalizer;
  if (!part.is_null()) BH_RETURN_IF_ERROR(ReadStep(part, 0, &normalizer.steps_));
  return normalizer;
}

bool Normalizer::keeps_length() const {
  return std::all_of(steps_.begin(), steps_.end(),
                     [](const auto& step) { return step->keeps_length(); });
}

absl::Status Normalizer::Normalize(EncodeBudget& budget, AlignedText* text) const {
  size_t longest = text->text.size();
  BH_RETURN_IF_ERROR(budget.normalized.Check(longest));
  for (const std::unique_ptr<NormalizerStep>& step : steps_) {
    BH_RETURN_IF_ERROR(step->Apply(budget, text));
    longest = std::max(longest, text->text.size());
  }
  budget.normalized.Use(longest);
  return absl::OkStatus();
}

}  // namespace bulkhead
