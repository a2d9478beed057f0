#include "runtime/structured/grammar.h"

#include "absl/strings/str_cat.h"
#include "base/ordered_json.h"
#include "base/status.h"
#include "runtime/structured/grammar_builder.h"
#include "runtime/structured/json_grammar.h"
#include "runtime/structured/json_schema.h"
#include "runtime/structured/regex.h"

namespace bulkhead::structured {

namespace {

absl::StatusOr<int32_t> ChoiceRule(absl::Span<const std::string> texts, GrammarBuilder& builder) {
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
  return builder.AddRule(false, [&](int32_t next) {
    return builder.AnyOf({texts.begin(), texts.end()}, next);
  });
}

absl::StatusOr<int32_t> RegexRule(absl::string_view pattern, GrammarBuilder& builder) {
  BH_ASSIGN_OR_RETURN(const Regex regex, Regex::Parse(pattern));
  return builder.AddRule(false, [&](int32_t next) {
    return regex.Emit(builder, Writing::kPlain, /*search=*/false, next);
  });
}

absl::StatusOr<int32_t> SchemaRule(absl::string_view schema, GrammarBuilder& builder) {
  if (schema.size() > kMaxGrammarBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a JSON schema of ", schema.size(),
                                                   " bytes; the limit is ", kMaxGrammarBytes));
  }
  BH_ASSIGN_OR_RETURN(const nlohmann::ordered_json root,
                      ParseOrderedJsonObject(schema, "JSON schema"));
  return JsonSchemaCompiler(root, builder).Compile();
}

absl::StatusOr<int32_t> FormRule(const GrammarSpec& spec, GrammarBuilder& builder) {
  switch (spec.form) {
    case GrammarSpec::Form::kChoice:
      return ChoiceRule(spec.texts, builder);
    case GrammarSpec::Form::kRegex:
      return RegexRule(spec.texts.at(0), builder);
    case GrammarSpec::Form::kJsonSchema:
      return SchemaRule(spec.texts.at(0), builder);
    case GrammarSpec::Form::kJsonObject:
      break;
  }
  return JsonGrammar(builder).Object();
}

const char* FormName(GrammarSpec::Form form) {
  switch (form) {
    case GrammarSpec::Form::kChoice:
      return "choice";
    case GrammarSpec::Form::kRegex:
      return "regular expression";
    case GrammarSpec::Form::kJsonSchema:
      return "JSON schema";
    case GrammarSpec::Form::kJsonObject:
      break;
  }
  return "JSON object";
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Of(const GrammarSpec& spec) {
  GrammarBuilder builder;
  BH_ASSIGN_OR_RETURN(int32_t root, FormRule(spec, builder));
  if (!spec.prefix.empty() || !spec.suffix.empty() || !spec.free_until.empty()) {
    root = builder.AddRule(false, [&](int32_t next) {
      next = builder.Literal(spec.suffix, next);
      next = builder.Literal(spec.prefix, builder.Call(root, next));
      if (spec.free_until.empty()) return next;
      const int32_t free = builder.Until(spec.free_until, next);
      if (spec.free_from.empty()) return free;
      return builder.Split({builder.Literal(spec.free_from, free), next});
    });
  }
  absl::StatusOr<std::shared_ptr<const Grammar>> grammar = builder.Finish(root);
  if (grammar.ok()) return grammar;
  return absl::Status(grammar.status().code(),
                      absl::StrCat(FormName(spec.form), ": ", grammar.status().message()));
}

size_t Grammar::bytes() const {
  return sizeof(*this) + states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(ByteEdge) +
         targets_.capacity() * sizeof(int32_t) + rules_.capacity() * sizeof(Rule);
}

}  // namespace bulkhead::structured
