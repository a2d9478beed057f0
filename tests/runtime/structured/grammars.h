// Grammars of one form.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/structured/grammar.h"

namespace bulkhead::structured {

using GrammarOr = absl::StatusOr<std::shared_ptr<const Grammar>>;

inline GrammarOr ChoiceGrammar(std::vector<std::string> texts) {
  return Grammar::Of({.form = GrammarSpec::Form::kChoice, .texts = std::move(texts)});
}
inline GrammarOr RegexGrammar(const std::string& pattern) {
  return Grammar::Of({.form = GrammarSpec::Form::kRegex, .texts = {pattern}});
}
inline GrammarOr JsonSchemaGrammar(const std::string& schema) {
  return Grammar::Of({.form = GrammarSpec::Form::kJsonSchema, .texts = {schema}});
}

}  // namespace bulkhead::structured
