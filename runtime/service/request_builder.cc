#include "runtime/service/request_builder.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {
namespace {

uint64_t RandomSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32U) | device();
}

struct FloatRange {
  float low;
  float high;
  bool low_allowed;
  const char* text;
};

constexpr FloatRange kTemperatureRange = {0, kMaxTemperature, true, "[0, 100]; 0 is greedy"};
constexpr FloatRange kTopPRange = {0, 1, false, "(0, 1]; 1 is off"};
constexpr FloatRange kMinPRange = {0, 1, true, "[0, 1]; 0 is off"};

// The request's value, else generation_config.json's, else `otherwise`. Comparisons are written so
// that NaN fails them.
absl::StatusOr<float> Choose(absl::string_view name, std::optional<float> asked,
                             std::optional<double> configured, float otherwise,
                             const FloatRange& range) {
  const float value =
      asked.has_value() ? *asked : static_cast<float>(configured.value_or(otherwise));
  const bool fits =
      (value > range.low || (range.low_allowed && value == range.low)) && value <= range.high;
  if (fits) return value + 0.0F;                            // -0 becomes 0
  const std::string text = absl::StrFormat("%.9g", value);  // enough digits to distinguish floats
  return InvalidField(absl::StrCat("sampling.", name),
                      absl::StrCat(text, asked.has_value() ? "" : " (from generation_config.json)",
                                   " is outside ", range.text),
                      reason::kInvalidValue, {{"value", text}, {"limit", range.text}});
}

absl::StatusOr<SamplingParams> BuildSampling(const v1::Sampling& asked, const RequestRules& rules) {
  const GenerationDefaults& defaults = rules.defaults;
  // do_sample false means greedy, whatever temperature the file also has.
  const std::optional<double> configured_temperature =
      defaults.do_sample == std::optional<bool>(false) ? std::optional<double>(0.0)
                                                       : defaults.temperature;
  const auto given = [](bool has, float value) {
    return has ? std::optional<float>(value) : std::nullopt;
  };
  SamplingParams out;
  BH_ASSIGN_OR_RETURN(out.temperature,
                      Choose("temperature", given(asked.has_temperature(), asked.temperature()),
                             configured_temperature, 1.0F, kTemperatureRange));
  BH_ASSIGN_OR_RETURN(out.top_p, Choose("top_p", given(asked.has_top_p(), asked.top_p()),
                                        defaults.top_p, 1.0F, kTopPRange));
  BH_ASSIGN_OR_RETURN(out.min_p, Choose("min_p", given(asked.has_min_p(), asked.min_p()),
                                        defaults.min_p, 0.0F, kMinPRange));
  // More than the vocabulary means off; files write "off" as 0 or -1.
  const int64_t top_k =
      asked.has_top_k() ? int64_t{asked.top_k()} : int64_t{std::max(0, defaults.top_k.value_or(0))};
  out.top_k = top_k >= rules.vocab_size ? 0 : static_cast<int>(top_k);
  out.seed = asked.has_seed() ? asked.seed() : RandomSeed();
  return out;
}

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

// `remaining`: what the prompt leaves of max_model_len, >= 1.
absl::StatusOr<StoppingParams> BuildStopping(const v1::Stopping& asked, const RequestRules& rules,
                                             int remaining) {
  StoppingParams out;
  if (asked.has_max_tokens() && asked.max_tokens() < 1) {
    return InvalidField("stopping.max_tokens",
                        "0 is less than 1; ask for at least one token, or leave it out",
                        reason::kInvalidValue, {{"value", "0"}, {"limit", "1"}});
  }
  // The engine ends a generation at max_model_len; larger values only have to fit the type.
  out.max_tokens =
      asked.has_max_tokens()
          ? static_cast<int>(std::min<uint32_t>(asked.max_tokens(), rules.max_model_len))
          : std::min(remaining, rules.default_max_tokens);
  const int64_t most = asked.has_max_tokens() ? int64_t{asked.max_tokens()} : out.max_tokens;
  if (asked.min_tokens() > most) {
    return InvalidField(
        "stopping.min_tokens",
        absl::StrCat(asked.min_tokens(), " is more than max_tokens ", most,
                     asked.has_max_tokens() ? "" : " (the default)", "; raise max_tokens"),
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

absl::Status AddResume(const v1::Resume& resume, const v1::Sampling& sampling,
                       const RequestRules& rules, Request& request) {
  BH_ASSIGN_OR_RETURN(request.emitted, CheckedTokenIds(resume.emitted_token_ids(), rules.vocab_size,
                                                       "resume.emitted_token_ids"));
  const auto emitted = static_cast<int64_t>(request.emitted.size());
  const int most = EffectiveMaxTokens(request, rules.max_model_len);
  // All of them is valid: the client has every token, and asks how the generation ended.
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
  // Held-back text only shortens what was sent, and the prompt can only add: a loose bound that
  // valid requests never reach.
  uint64_t text_bytes = 0;
  if (rules.tokenizer != nullptr && request.wants_text && emitted > 0) {
    std::vector<TokenId> all = request.prompt;
    all.insert(all.end(), request.emitted.begin(), request.emitted.end());
    text_bytes = rules.tokenizer->Decode(all, request.skip_special_tokens).size();
  }
  if (resume.text_bytes_sent() > text_bytes) {
    return InvalidField(
        "resume.text_bytes_sent",
        absl::StrCat(resume.text_bytes_sent(), " is more than the ", text_bytes,
                     " bytes that the emitted tokens can have"),
        reason::kInvalidValue,
        {{"value", absl::StrCat(resume.text_bytes_sent())}, {"limit", absl::StrCat(text_bytes)}});
  }
  request.text_bytes_sent = resume.text_bytes_sent();
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
  BH_ASSIGN_OR_RETURN(out.prompt, BuildPrompt(request, rules, /*reserved_tokens=*/0));
  out.priority = message.priority();
  out.wants_text = false;
  return out;
}

absl::StatusOr<Request> BuildRequest(const v1::GenerateRequest& request,
                                     const RequestRules& rules) {
  BH_RETURN_IF_ERROR(RefuseUnknownFields(request, ""));
  BH_RETURN_IF_ERROR(CheckNames(request, rules));
  Request out;
  out.request_id = request.request_id();
  // Cheap checks before tokenising.
  BH_ASSIGN_OR_RETURN(out.sampling, BuildSampling(request.sampling(), rules));
  const v1::Output& output = request.output();
  if (output.has_logprobs()) {
    if (output.logprobs() > static_cast<uint32_t>(rules.max_logprobs)) {
      return InvalidField("output.logprobs",
                          absl::StrCat(output.logprobs(), " is more than the limit of ",
                                       rules.max_logprobs, "; ask for fewer"),
                          reason::kInvalidValue,
                          {{"value", absl::StrCat(output.logprobs())},
                           {"limit", absl::StrCat(rules.max_logprobs)}});
    }
    out.num_logprobs = static_cast<int>(std::min<uint32_t>(output.logprobs(), rules.vocab_size));
  }
  BH_RETURN_IF_ERROR(BuildStopping(request.stopping(), rules, rules.max_model_len).status());
  BH_ASSIGN_OR_RETURN(out.prompt, BuildPrompt(request, rules, /*reserved_tokens=*/1));
  const int remaining = rules.max_model_len - static_cast<int>(out.prompt.size());
  BH_ASSIGN_OR_RETURN(out.stopping, BuildStopping(request.stopping(), rules, remaining));
  out.priority = request.priority();
  out.cache_salt = request.cache_salt();
  out.wants_text = (!output.has_text() || output.text()) && rules.tokenizer != nullptr;
  out.skip_special_tokens = !output.has_skip_special_tokens() || output.skip_special_tokens();
  if (request.has_resume()) {
    BH_RETURN_IF_ERROR(AddResume(request.resume(), request.sampling(), rules, out));
  }
  return out;
}

}  // namespace bulkhead
