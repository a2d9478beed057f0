#include "runtime/service/http/completion_request.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/open_calls.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

constexpr uint32_t kDefaultMaxTokens = 16;  // OpenAI's and vLLM's for completions

absl::Status SetPrompt(const Json& prompt, const std::string& field, v1::GenerateRequest* request) {
  if (prompt.is_string()) {
    request->set_text(prompt.get<std::string>());
    return absl::OkStatus();
  }
  if (!prompt.is_array()) return WrongValue(field, prompt, "a text or a list of token ids");
  BH_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, TokenIdsOf(prompt, field));
  request->mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  request->clear_add_special_tokens();
  return absl::OkStatus();
}

// Logprobs of prompt tokens: next to the answer's if they are echoed, else in their own list.
absl::Status ReadPromptLogprobs(JsonFields& fields, const RequestRules& rules,
                                CompletionRequest* out, v1::GenerateRequest* common) {
  BH_ASSIGN_OR_RETURN(const std::optional<uint32_t> asked,
                      ReadCount(fields, "prompt_logprobs", rules.max_logprobs));
  const std::optional<int> logprobs = out->options.logprobs;
  if (asked.has_value()) {
    if (out->options.stream) {
      return InvalidField("prompt_logprobs",
                          "excludes stream, as in vLLM; leave it out, or send echo with logprobs");
    }
    if (out->options.echo && logprobs.has_value()) {
      return InvalidField("prompt_logprobs",
                          "excludes echo with logprobs, which gives those of the prompt, too");
    }
    out->options.prompt_logprobs = true;
    common->mutable_output()->set_prompt_logprobs(*asked);
    return absl::OkStatus();
  }
  // Without an answer the prompt is computed for its log probabilities, whether or not it has any.
  const bool is_prompt_alone = common->stopping().max_tokens() == 0;
  if (out->options.echo && (logprobs.has_value() || is_prompt_alone)) {
    common->mutable_output()->set_prompt_logprobs(static_cast<uint32_t>(logprobs.value_or(0)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadPrompts(JsonFields& fields, const std::string& name,
                         const v1::GenerateRequest& common, int n, int most,
                         std::vector<v1::GenerateRequest>* out) {
  const Json* prompt = fields.Find(name);
  if (prompt == nullptr) return InvalidField(name, "is missing; send a text or token ids");
  const bool is_list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!is_list) {
    out->push_back(common);
    return SetPrompt(*prompt, name, &out->back());
  }
  if (static_cast<int64_t>(prompt->size()) * n > most) {
    return InvalidField(
        name, absl::StrCat(prompt->size(), n > 1 ? absl::StrCat(" with n = ", n) : "",
                           " are more than the limit of ", most, "; send several requests"));
  }
  out->reserve(prompt->size());
  for (const Json& one : *prompt) {
    out->push_back(common);
    const std::string field = absl::StrCat(name, "[", out->size() - 1, "]");
    BH_RETURN_IF_ERROR(SetPrompt(one, field, &out->back()));
  }
  return absl::OkStatus();
}

absl::StatusOr<CompletionRequest> ReadCompletion(const Json& body, const RequestRules& rules) {
  CompletionRequest out;
  v1::GenerateRequest common;
  JsonFields fields(body);
  BH_RETURN_IF_ERROR(ReadGenerationOptions(fields, rules, &out.options, &common));
  BH_RETURN_IF_ERROR(CheckNames(common, rules));  // before it is copied for each prompt
  common.mutable_stopping()->set_max_tokens(kDefaultMaxTokens);
  BH_RETURN_IF_ERROR(ReadMaxTokens(fields, "max_tokens", 0, rules.max_model_len, &common));
  BH_ASSIGN_OR_RETURN(const std::optional<uint32_t> logprobs,
                      ReadCount(fields, "logprobs", rules.max_logprobs));
  if (logprobs.has_value()) {
    out.options.logprobs = static_cast<int>(*logprobs);
    common.mutable_output()->set_logprobs(*logprobs);
  }
  std::optional<bool> echo, add_special;
  BH_RETURN_IF_ERROR(fields.Read("echo", &echo));
  out.options.echo = echo.value_or(false);
  BH_RETURN_IF_ERROR(ReadPromptLogprobs(fields, rules, &out, &common));
  common.mutable_output()->set_prompt_token_ids(out.options.echo || out.options.token_ids);
  BH_RETURN_IF_ERROR(fields.Read("add_special_tokens", &add_special));
  if (add_special.has_value()) common.set_add_special_tokens(*add_special);
  BH_RETURN_IF_ERROR(fields.Refuse({"suffix"}, {""}, "text cannot be inserted; leave it out"));
  BH_RETURN_IF_ERROR(
      ReadPrompts(fields, "prompt", common, out.options.n, kMaxChoices, &out.prompts));
  BH_RETURN_IF_ERROR(fields.Finish());
  return out;
}

}  // namespace bulkhead
