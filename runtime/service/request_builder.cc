#include "runtime/service/request_builder.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/engine/logits_processor.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"
#include "runtime/service/sampling_builder.h"
#include "runtime/service/structured_builder.h"

namespace bulkhead {
namespace {

absl::Status CheckStopStrings(const v1::Stopping& asked) {
  if (asked.stop_size() > kMaxStopStrings) {
    return InvalidField(
        "stopping.stop",
        absl::StrCat(asked.stop_size(), " strings are more than the limit of ", kMaxStopStrings,
                     "; send fewer"),
        reason::kInvalidValue,
        {{"value", absl::StrCat(asked.stop_size())}, {"limit", absl::StrCat(kMaxStopStrings)}});
  }
  for (int i = 0; i < asked.stop_size(); ++i) {
    const std::string& stop = asked.stop(i);
    const std::string field = absl::StrCat("stopping.stop[", i, "]");
    if (stop.empty()) return InvalidField(field, "is empty; leave it out");
    if (stop.size() > kMaxStopStringBytes) {
      return InvalidField(
          field,
          absl::StrCat(stop.size(), " bytes are more than the limit of ", kMaxStopStringBytes,
                       "; shorten it"),
          reason::kInvalidValue,
          {{"value", absl::StrCat(stop.size())}, {"limit", absl::StrCat(kMaxStopStringBytes)}});
    }
    if (!IsValidUtf8(stop)) {
      return InvalidField(field, absl::StrCat(Quoted(stop), " is not valid UTF-8"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> NumLogprobs(absl::string_view field, uint32_t asked,
                                const RequestRules& rules) {
  if (asked <= static_cast<uint32_t>(rules.max_logprobs)) {
    return static_cast<int>(std::min<uint32_t>(asked, rules.vocab_size));
  }
  return InvalidField(
      field,
      absl::StrCat(asked, " is more than the limit of ", rules.max_logprobs, "; ask for fewer"),
      reason::kInvalidValue,
      {{"value", absl::StrCat(asked)}, {"limit", absl::StrCat(rules.max_logprobs)}});
}

// `remaining`: what the prompt leaves of max_model_len, >= 1 if it `generates`.
absl::StatusOr<StoppingParams> BuildStopping(const v1::Stopping& asked, const RequestRules& rules,
                                             int remaining, bool generates) {
  StoppingParams out;
  if (generates && asked.has_max_tokens() && asked.max_tokens() < 1) {
    return InvalidField("stopping.max_tokens",
                        "0 is less than 1; ask for at least one token, for the prompt "
                        "(prompt_logprobs, or echo), or leave it out",
                        reason::kInvalidValue, {{"value", "0"}, {"limit", "1"}});
  }
  // The engine ends a generation at max_model_len; larger values only have to fit the type.
  out.max_tokens =
      asked.has_max_tokens() || !generates
          ? static_cast<int>(std::min<uint32_t>(asked.max_tokens(), rules.max_model_len))
          : std::min(remaining, rules.default_max_tokens);
  const int64_t most = asked.has_max_tokens() ? int64_t{asked.max_tokens()} : out.max_tokens;
  if (asked.min_tokens() > most) {
    return InvalidField(
        "stopping.min_tokens",
        absl::StrCat(
            asked.min_tokens(), " is more than the ", most, " tokens that the answer may have",
            asked.has_max_tokens() ? "" : " by default", "; lower it, or allow more tokens"),
        reason::kInvalidValue,
        {{"value", absl::StrCat(asked.min_tokens())}, {"limit", absl::StrCat(most)}});
  }
  out.min_tokens = static_cast<int>(std::min<uint32_t>(asked.min_tokens(), rules.max_model_len));
  BH_RETURN_IF_ERROR(CheckStopStrings(asked));
  out.stop.assign(asked.stop().begin(), asked.stop().end());
  if (!out.stop.empty() && rules.tokenizer == nullptr) {
    return InvalidField("stopping.stop",
                        "the model has no tokenizer.json, so there is no text to stop at; use "
                        "stop_token_ids",
                        reason::kTextNotSupported);
  }
  if (asked.stop_token_ids_size() > kMaxStopTokenIds) {
    return InvalidField(
        "stopping.stop_token_ids",
        absl::StrCat(asked.stop_token_ids_size(), " ids are more than the limit of ",
                     kMaxStopTokenIds, "; send fewer"),
        reason::kInvalidValue,
        {{"value", absl::StrCat(asked.stop_token_ids_size())},
         {"limit", absl::StrCat(kMaxStopTokenIds)}});
  }
  BH_ASSIGN_OR_RETURN(out.stop_token_ids, CheckedTokenIds(asked.stop_token_ids(), rules.vocab_size,
                                                          "stopping.stop_token_ids"));
  out.ignore_eos = asked.ignore_eos();
  out.include_stop_in_output = asked.include_stop_in_output();
  return out;
}

// Upper bound for the emitted tokens: held-back text and stop strings only shorten what was sent.
uint64_t MostTextBytes(const Request& request, const RequestRules& rules) {
  if (rules.tokenizer == nullptr || !request.wants_text || request.emitted.empty()) return 0;
  const auto decoder = rules.tokenizer->NewTextDecoder(request.prompt, request.skip_special_tokens);
  uint64_t bytes = 0;
  for (const TokenId id : request.emitted) bytes += decoder->Add(id).size();
  return bytes + decoder->Finish().size();
}

absl::Status AddResume(const v1::Resume& resume, const v1::Sampling& sampling,
                       const RequestRules& rules, Request& request) {
  BH_ASSIGN_OR_RETURN(request.emitted, CheckedTokenIds(resume.emitted_token_ids(), rules.vocab_size,
                                                       "resume.emitted_token_ids"));
  const auto emitted = static_cast<int64_t>(request.emitted.size());
  const int most = EffectiveMaxTokens(request, rules.max_model_len);
  // Equality is valid: the client has every token, and asks how the generation ended.
  if (emitted > most) {
    return InvalidField("resume.emitted_token_ids",
                        absl::StrCat(emitted, " tokens are more than the ", most,
                                     " that the generation may have; send those that it emitted"),
                        reason::kInvalidValue,
                        {{"value", absl::StrCat(emitted)}, {"limit", absl::StrCat(most)}});
  }
  if (emitted > 0 && request.sampling.temperature > 0 && !sampling.has_seed()) {
    return InvalidField("sampling.seed",
                        "is missing: a resumed generation needs the seed that its first Accepted "
                        "event returned");
  }
  const uint64_t text_bytes = MostTextBytes(request, rules);
  if (resume.text_bytes_sent() > text_bytes) {
    return InvalidField(
        "resume.text_bytes_sent",
        absl::StrCat(resume.text_bytes_sent(), " is more than the ", text_bytes,
                     " bytes that the emitted tokens can have"),
        reason::kInvalidValue,
        {{"value", absl::StrCat(resume.text_bytes_sent())}, {"limit", absl::StrCat(text_bytes)}});
  }
  request.text_bytes_sent = resume.text_bytes_sent();
  request.text_bytes_unsent = text_bytes - resume.text_bytes_sent();
  return absl::OkStatus();
}

absl::Status CheckHasLogits(const RequestRules& rules, absl::string_view field) {
  if (!rules.embedding.alone) return absl::OkStatus();
  return InvalidField(field, "the model's checkpoint has no lm_head: it gives embeddings alone",
                      reason::kUnsupportedParameter);
}

absl::Status CheckEmbedding(const v1::GenerateRequest& request, const RequestRules& rules) {
  const v1::Output& output = request.output();
  if (!output.embedding()) return CheckHasLogits(rules, "output.embedding");
  if (rules.embedding.size == 0) {
    return InvalidField("output.embedding",
                        absl::StrCat("the model gives no embeddings: ", rules.embedding.why_not),
                        reason::kUnsupportedParameter);
  }
  const auto unwanted = [](absl::string_view with) {
    return InvalidField("output.embedding",
                        absl::StrCat("nothing is generated for an embedding; leave out ", with));
  };
  if (request.stopping().max_tokens() > 0) return unwanted("stopping.max_tokens");
  if (output.has_prompt_logprobs()) return unwanted("output.prompt_logprobs");
  if (output.has_logprobs()) return unwanted("output.logprobs");
  if (request.has_resume()) return unwanted("resume");
  return absl::OkStatus();
}

}  // namespace

int EffectiveMaxTokens(const Request& request, int max_model_len) {
  return std::min(request.stopping.max_tokens,
                  max_model_len - static_cast<int>(request.prompt.size()));
}

absl::StatusOr<Request> BuildScoreRequest(const v1::ScoreRequest& message,
                                          const RequestRules& rules) {
  BH_RETURN_IF_ERROR(RefuseUnknownFields(message, ""));
  BH_RETURN_IF_ERROR(CheckHasLogits(rules, "model"));
  v1::GenerateRequest request;
  request.set_request_id(message.request_id());
  request.set_model(message.model());
  if (message.has_text()) request.set_text(message.text());
  if (message.has_token_ids()) *request.mutable_token_ids() = message.token_ids();
  if (message.has_add_special_tokens()) {
    request.set_add_special_tokens(message.add_special_tokens());
  }
  BH_RETURN_IF_ERROR(CheckNames(request, rules));
  Request out;
  out.request_id = message.request_id();
  SetAdapter(message.model(), rules, out);
  BH_ASSIGN_OR_RETURN(out.prompt, BuildPrompt(request, rules, /*reserved_tokens=*/0));
  out.priority = message.priority();
  out.wants_text = false;
  return out;
}

bool Generates(const v1::GenerateRequest& request) {
  const v1::Output& output = request.output();
  return !output.embedding() &&
         (!request.stopping().has_max_tokens() || request.stopping().max_tokens() > 0 ||
          !output.has_prompt_logprobs());
}

absl::StatusOr<Request> BuildRequest(const v1::GenerateRequest& request,
                                     const RequestRules& rules) {
  BH_RETURN_IF_ERROR(RefuseUnknownFields(request, ""));
  BH_RETURN_IF_ERROR(CheckNames(request, rules));
  Request out;
  out.request_id = request.request_id();
  SetAdapter(request.model(), rules, out);
  // Cheap checks before tokenising.
  BH_ASSIGN_OR_RETURN(out.sampling, BuildSampling(request.sampling(), rules));
  BH_ASSIGN_OR_RETURN(out.logits, BuildLogits(request.sampling(), rules));
  const v1::Output& output = request.output();
  if (output.has_logprobs()) {
    BH_ASSIGN_OR_RETURN(out.num_logprobs, NumLogprobs("output.logprobs", output.logprobs(), rules));
  }
  if (output.has_prompt_logprobs()) {
    BH_ASSIGN_OR_RETURN(out.num_prompt_logprobs,
                        NumLogprobs("output.prompt_logprobs", output.prompt_logprobs(), rules));
  }
  if (request.has_time_limit_ms()) {
    if (request.time_limit_ms() < 1) {
      return InvalidField("time_limit_ms", "0 is less than 1; leave it out for no limit",
                          reason::kInvalidValue, {{"value", "0"}, {"limit", "1"}});
    }
    out.time_limit_ms = request.time_limit_ms();
  }
  BH_RETURN_IF_ERROR(CheckEmbedding(request, rules));
  const bool generates = Generates(request);
  BH_RETURN_IF_ERROR(
      BuildStopping(request.stopping(), rules, rules.max_model_len, generates).status());
  BH_ASSIGN_OR_RETURN(out.prompt, BuildPrompt(request, rules, generates ? 1 : 0));
  const int remaining = rules.max_model_len - static_cast<int>(out.prompt.size());
  BH_ASSIGN_OR_RETURN(out.stopping, BuildStopping(request.stopping(), rules, remaining, generates));
  if (request.has_structured()) {
    BH_ASSIGN_OR_RETURN(out.logits.grammar, BuildGrammar(request, rules));
    const v1::StructuredOutput& grammar = request.structured();
    if (grammar.free_until().empty() || !grammar.free_from().empty()) {
      out.stopping.forced = grammar.prefix();
    }
  }
  out.priority = request.priority();
  out.cache_salt = request.cache_salt();
  out.wants_text = (!output.has_text() || output.text()) && rules.tokenizer != nullptr;
  out.skip_special_tokens = !output.has_skip_special_tokens() || output.skip_special_tokens();
  if (request.has_resume()) {
    BH_RETURN_IF_ERROR(AddResume(request.resume(), request.sampling(), rules, out));
    if (out.logits.grammar != nullptr && !out.emitted.empty())
      FollowGrammar(out.emitted, out.logits);
  }
  return out;
}

}  // namespace bulkhead
