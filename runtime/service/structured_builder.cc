#include "runtime/service/structured_builder.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using structured::GrammarSpec;

// `field` names the grammar in errors.
absl::StatusOr<GrammarSpec> SpecOf(const v1::StructuredOutput& asked, std::string* field) {
  GrammarSpec spec;
  switch (asked.form_case()) {
    case v1::StructuredOutput::kChoice:
      *field = "structured.choice";
      spec.form = GrammarSpec::Form::kChoice;
      spec.texts.assign(asked.choice().texts().begin(), asked.choice().texts().end());
      break;
    case v1::StructuredOutput::kRegex:
      *field = "structured.regex";
      spec.form = GrammarSpec::Form::kRegex;
      spec.texts = {asked.regex()};
      break;
    case v1::StructuredOutput::kJsonSchema:
      *field = "structured.json_schema";
      spec.form = GrammarSpec::Form::kJsonSchema;
      spec.texts = {asked.json_schema()};
      break;
    case v1::StructuredOutput::kJsonObject:
      *field = "structured.json_object";
      if (!asked.json_object()) return InvalidField(*field, "is false; leave `structured` out");
      break;
    case v1::StructuredOutput::FORM_NOT_SET:
      return InvalidField("structured",
                          "has no form; set choice, regex, json_object or json_schema");
  }
  const auto add = [](const char* name, const std::string& text, std::string* out) {
    const std::string around = absl::StrCat("structured.", name);
    if (text.size() > kMaxGrammarTextBytes) {
      return InvalidField(around, absl::StrCat(text.size(), " bytes are more than the limit of ",
                                               kMaxGrammarTextBytes, "; shorten it"));
    }
    if (!IsValidUtf8(text)) return InvalidField(around, "is not valid UTF-8");
    *out = text;
    return absl::OkStatus();
  };
  BH_RETURN_IF_ERROR(add("prefix", asked.prefix(), &spec.prefix));
  BH_RETURN_IF_ERROR(add("suffix", asked.suffix(), &spec.suffix));
  BH_RETURN_IF_ERROR(add("free_until", asked.free_until(), &spec.free_until));
  BH_RETURN_IF_ERROR(add("free_from", asked.free_from(), &spec.free_from));
  for (const std::string& text : spec.texts) {
    if (!IsValidUtf8(text)) return InvalidField(*field, "is not valid UTF-8");
  }
  return spec;
}

absl::Status Explained(const absl::Status& status, const std::string& field) {
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
      return InvalidField(field, status.message(), reason::kUnsupportedParameter);
    case absl::StatusCode::kInvalidArgument:
      return InvalidField(field, status.message(), reason::kStructuredOutput);
    case absl::StatusCode::kResourceExhausted:
      return WithRetryAfter(
          WithReason(absl::ResourceExhaustedError(absl::StrCat(field, ": ", status.message())),
                     reason::kStructuredOutput),
          absl::Seconds(1));
    default:
      return WithReason(status, reason::kStructuredOutput);
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<structured::Automaton>> BuildGrammar(
    const v1::GenerateRequest& request, const RequestRules& rules) {
  if (!request.has_structured()) return nullptr;
  std::string field;
  BH_ASSIGN_OR_RETURN(const GrammarSpec spec, SpecOf(request.structured(), &field));
  if (rules.grammars == nullptr) {
    return InvalidField(field, "the model has no tokenizer.json, so its tokens have no text",
                        reason::kTextNotSupported);
  }
  if (request.stopping().ignore_eos()) {
    return InvalidField(
        "stopping.ignore_eos",
        "excludes structured output, which ends where its grammar is complete; leave "
        "one out");
  }
  absl::StatusOr<std::shared_ptr<structured::Automaton>> grammar = rules.grammars->Get(spec);
  if (!grammar.ok()) return Explained(grammar.status(), field);
  return grammar;
}

std::shared_ptr<structured::Automaton> CompiledGrammar(const v1::GenerateRequest& request,
                                                       const RequestRules& rules) {
  if (!request.has_structured() || rules.grammars == nullptr) return nullptr;
  std::string field;
  const absl::StatusOr<GrammarSpec> spec = SpecOf(request.structured(), &field);
  return spec.ok() ? rules.grammars->Find(*spec) : nullptr;
}

}  // namespace bulkhead
