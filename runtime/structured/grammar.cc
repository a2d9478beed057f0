#include "runtime/structured/grammar.h"

#include "absl/strings/str_cat.h"
#include "base/ordered_json.h"
#include "base/status.h"
#include "runtime/structured/grammar_builder.h"
#include "runtime/structured/json_schema.h"
#include "runtime/structured/regex.h"

namespace bulkhead::structured {

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Choice(
    absl::Span<const std::string> texts) {
  if (texts.empty()) return absl::InvalidArgumentError("choice: the list is empty");
  if (texts.size() > kMaxChoices) {
    return absl::InvalidArgumentError(
        absl::StrCat("choice: ", texts.size(), " texts; the limit is ", kMaxChoices));
  }
  size_t bytes = 0;
  for (const std::string& text : texts) {
    if (text.empty()) return absl::InvalidArgumentError("choice: a text is empty");
    bytes += text.size();
  }
  if (bytes > kMaxGrammarBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("choice: ", bytes, " bytes; the limit is ", kMaxGrammarBytes));
  }
  GrammarBuilder builder;
  const int32_t root = builder.AddRule(false, [&](int32_t next) {
    return builder.AnyOf({texts.begin(), texts.end()}, next);
  });
  return builder.Finish(root);
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Regex(absl::string_view pattern) {
  BH_ASSIGN_OR_RETURN(const structured::Regex regex, structured::Regex::Parse(pattern));
  GrammarBuilder builder;
  const int32_t root = builder.AddRule(false, [&](int32_t next) {
    return regex.Emit(builder, Writing::kPlain, /*search=*/false, next);
  });
  absl::StatusOr<std::shared_ptr<const Grammar>> grammar = builder.Finish(root);
  if (grammar.ok()) return grammar;
  return absl::Status(grammar.status().code(),
                      absl::StrCat("regular expression: ", grammar.status().message()));
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::JsonObject() {
  GrammarBuilder builder;
  JsonGrammar json(builder);
  return builder.Finish(json.Object());
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::JsonSchema(absl::string_view schema) {
  if (schema.size() > kMaxGrammarBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a JSON schema of ", schema.size(),
                                                   " bytes; the limit is ", kMaxGrammarBytes));
  }
  BH_ASSIGN_OR_RETURN(const nlohmann::ordered_json root,
                      ParseOrderedJsonObject(schema, "JSON schema"));
  GrammarBuilder builder;
  BH_ASSIGN_OR_RETURN(const int32_t rule, JsonSchemaCompiler(root, builder).Compile());
  absl::StatusOr<std::shared_ptr<const Grammar>> grammar = builder.Finish(rule);
  if (grammar.ok()) return grammar;
  return absl::Status(grammar.status().code(),
                      absl::StrCat("JSON schema: ", grammar.status().message()));
}

size_t Grammar::bytes() const {
  return sizeof(*this) + states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(ByteEdge) +
         targets_.capacity() * sizeof(int32_t) + rules_.capacity() * sizeof(Rule);
}

}  // namespace bulkhead::structured
