#include "runtime/tokenizer/pattern.h"

#include <utility>

#include "base/status.h"

namespace bulkhead {

Pattern Pattern::Literal(std::string literal) {
  Pattern pattern;
  pattern.literal_ = std::move(literal);
  return pattern;
}

absl::StatusOr<Pattern> Pattern::Read(const JsonPart& part) {
  const bool is_string = part.Find("String").has_value();
  if (is_string == part.Find("Regex").has_value()) {
    return part.Invalid("is neither a String nor a Regex");
  }
  BH_ASSIGN_OR_RETURN(const JsonPart field, part.Get(is_string ? "String" : "Regex"));
  BH_ASSIGN_OR_RETURN(std::string text, field.AsString());
  // The empty string matches everywhere, like the empty regular expression.
  if (is_string && !text.empty()) return Literal(std::move(text));
  absl::StatusOr<std::unique_ptr<Regex>> regex = Regex::Compile(text);
  if (!regex.ok()) return field.Wrap(regex.status());
  Pattern pattern;
  pattern.regex_ = *std::move(regex);
  return pattern;
}

absl::Status Pattern::FindAll(absl::string_view text, RegexBudget& budget,
                              std::vector<Span>* spans) const {
  if (regex_ != nullptr) return regex_->FindAll(text, budget, spans);
  size_t covered = 0;
  while (covered < text.size()) {
    const size_t found = text.find(literal_, covered);
    if (found == absl::string_view::npos) break;
    if (found > covered) spans->push_back({covered, found, false});
    covered = found + literal_.size();
    spans->push_back({found, covered, true});
  }
  if (covered < text.size()) spans->push_back({covered, text.size(), false});
  return absl::OkStatus();
}

}  // namespace bulkhead
