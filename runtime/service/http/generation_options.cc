#include "runtime/service/http/generation_options.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/http/structured_fields.h"
#include "runtime/service/open_calls.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {
namespace {

absl::Status ReadFloat(JsonFields& fields, const std::string& name, std::optional<float>* out) {
  std::optional<double> value;
  BH_RETURN_IF_ERROR(fields.Read(name, &value));
  constexpr double kMax = std::numeric_limits<float>::max();
  if (value.has_value()) *out = static_cast<float>(std::clamp(*value, -kMax, kMax));
  return absl::OkStatus();
}

absl::Status ReadSampling(JsonFields& fields, v1::Sampling* sampling) {
  std::optional<float> temperature, top_p, min_p;
  BH_RETURN_IF_ERROR(ReadFloat(fields, "temperature", &temperature));
  BH_RETURN_IF_ERROR(ReadFloat(fields, "top_p", &top_p));
  BH_RETURN_IF_ERROR(ReadFloat(fields, "min_p", &min_p));
  if (temperature.has_value()) sampling->set_temperature(*temperature);
  if (top_p.has_value()) sampling->set_top_p(*top_p);
  if (min_p.has_value()) sampling->set_min_p(*min_p);
  std::optional<int64_t> top_k, seed;
  BH_RETURN_IF_ERROR(fields.Read("top_k", &top_k));
  if (top_k.has_value()) {
    if (*top_k < -1 || *top_k > std::numeric_limits<uint32_t>::max()) {
      return WrongValue(fields.Path("top_k"), Json(*top_k), "at least 1, or 0 or -1 for off");
    }
    sampling->set_top_k(static_cast<uint32_t>(std::max<int64_t>(*top_k, 0)));
  }
  const Json* given = fields.Find("seed");
  if (given != nullptr && given->is_number_unsigned()) {  // also above 2^63, as a random one may be
    sampling->set_seed(given->get<uint64_t>());
    return absl::OkStatus();
  }
  BH_RETURN_IF_ERROR(fields.Read("seed", &seed));
  if (seed.has_value()) sampling->set_seed(static_cast<uint64_t>(*seed));
  return absl::OkStatus();
}

// These fields are copied for each choice: long ones are refused first.
absl::Status CheckLengths(const char* field, const std::vector<std::string>& texts, size_t limit) {
  for (const std::string& text : texts) {
    if (text.size() <= limit) continue;
    return InvalidField(
        field, absl::StrCat("a text of ", text.size(), " bytes is more than the limit of ", limit));
  }
  return absl::OkStatus();
}

// {"50256": -100}: added to the logits of those ids.
absl::Status ReadLogitBias(JsonFields& fields, v1::Sampling* sampling) {
  const Json* biases = fields.Find("logit_bias");
  if (biases == nullptr) return absl::OkStatus();
  if (!biases->is_object() || biases->size() > kMaxLogitBiases) {
    return WrongValue("logit_bias", *biases,
                      absl::StrCat("an object of at most ", kMaxLogitBiases, " ids and biases"));
  }
  for (const auto& [key, bias] : biases->items()) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(key, &id))
      return InvalidField("logit_bias", Quoted(key) + " is not an id");
    if (!bias.is_number()) return WrongValue("logit_bias", bias, "a number");
    constexpr double kMost = 1e6;  // the range is checked with the request
    (*sampling->mutable_logit_bias())[id] =
        static_cast<float>(std::clamp(bias.get<double>(), -kMost, kMost));
  }
  return absl::OkStatus();
}

// The fields that change logits before a token is sampled.
absl::Status ReadPenalties(JsonFields& fields, v1::Sampling* sampling) {
  std::optional<float> repetition, presence, frequency;
  BH_RETURN_IF_ERROR(ReadFloat(fields, "repetition_penalty", &repetition));
  BH_RETURN_IF_ERROR(ReadFloat(fields, "presence_penalty", &presence));
  BH_RETURN_IF_ERROR(ReadFloat(fields, "frequency_penalty", &frequency));
  if (repetition.has_value()) sampling->set_repetition_penalty(*repetition);
  if (presence.has_value()) sampling->set_presence_penalty(*presence);
  if (frequency.has_value()) sampling->set_frequency_penalty(*frequency);
  BH_RETURN_IF_ERROR(ReadLogitBias(fields, sampling));
  if (const Json* ids = fields.Find("allowed_token_ids"); ids != nullptr) {
    if (!ids->is_array() || ids->empty() || ids->size() > kMaxAllowedTokenIds) {
      return WrongValue("allowed_token_ids", *ids,
                        absl::StrCat("a list of 1 to ", kMaxAllowedTokenIds, " token ids"));
    }
    BH_ASSIGN_OR_RETURN(const std::vector<uint32_t> list, TokenIdsOf(*ids, "allowed_token_ids"));
    sampling->mutable_allowed_token_ids()->Add(list.begin(), list.end());
  }
  std::vector<std::string> bad_words;
  BH_RETURN_IF_ERROR(fields.ReadTexts("bad_words", kMaxBadWords, &bad_words));
  BH_RETURN_IF_ERROR(CheckLengths("bad_words", bad_words, kMaxBadWordBytes));
  for (std::string& one : bad_words) sampling->add_bad_words(std::move(one));
  return absl::OkStatus();
}

absl::Status ReadStopping(JsonFields& fields, v1::GenerateRequest* request) {
  v1::Stopping& stopping = *request->mutable_stopping();
  std::vector<std::string> stop;
  BH_RETURN_IF_ERROR(fields.ReadTexts("stop", kMaxStopStrings, &stop));
  BH_RETURN_IF_ERROR(CheckLengths("stop", stop, kMaxStopStringBytes));
  for (std::string& one : stop) stopping.add_stop(std::move(one));
  if (const Json* ids = fields.Find("stop_token_ids"); ids != nullptr) {
    if (!ids->is_array() || ids->size() > kMaxStopTokenIds) {
      return WrongValue("stop_token_ids", *ids,
                        absl::StrCat("a list of at most ", kMaxStopTokenIds, " token ids"));
    }
    BH_ASSIGN_OR_RETURN(const std::vector<uint32_t> list, TokenIdsOf(*ids, "stop_token_ids"));
    stopping.mutable_stop_token_ids()->Add(list.begin(), list.end());
  }
  BH_ASSIGN_OR_RETURN(const std::optional<uint32_t> min_tokens,
                      ReadCount(fields, "min_tokens", std::numeric_limits<int32_t>::max()));
  if (min_tokens.has_value()) stopping.set_min_tokens(*min_tokens);
  std::optional<bool> ignore_eos, include_stop;
  BH_RETURN_IF_ERROR(fields.Read("ignore_eos", &ignore_eos));
  BH_RETURN_IF_ERROR(fields.Read("include_stop_str_in_output", &include_stop));
  if (ignore_eos.has_value()) stopping.set_ignore_eos(*ignore_eos);
  if (include_stop.has_value()) stopping.set_include_stop_in_output(*include_stop);
  return absl::OkStatus();
}

absl::Status ReadStreaming(JsonFields& fields, GenerationOptions* options) {
  std::optional<bool> stream, usage, continuous;
  BH_RETURN_IF_ERROR(fields.Read("stream", &stream));
  options->stream = stream.value_or(false);
  const Json* object = fields.Find("stream_options");
  if (object == nullptr) return absl::OkStatus();
  if (!object->is_object()) return WrongValue("stream_options", *object, "an object");
  JsonFields inner(*object, "stream_options.");
  BH_RETURN_IF_ERROR(inner.Read("include_usage", &usage));
  BH_RETURN_IF_ERROR(inner.Read("continuous_usage_stats", &continuous));
  inner.Ignore({"include_obfuscation"});
  options->include_usage = usage.value_or(false);
  options->continuous_usage = options->include_usage && continuous.value_or(false);
  return inner.Finish();
}

// In vLLM lower goes first; in our API higher is more urgent.
absl::Status ReadPriority(JsonFields& fields, const RequestRules& rules,
                          v1::GenerateRequest* request) {
  std::optional<int64_t> priority;
  BH_RETURN_IF_ERROR(fields.Read("priority", &priority));
  if (!priority.has_value()) return absl::OkStatus();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (*priority < -kMost || *priority > kMost) {
    return WrongValue("priority", Json(*priority), "a number from -2147483647 to 2147483647");
  }
  if (*priority != 0 && !rules.has_priorities) {
    return NotSupported("priority",
                        "requests go first come, first served; leave it out, or start the server "
                        "with --scheduling-policy priority");
  }
  request->set_priority(static_cast<int32_t>(-*priority));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<uint32_t>> ReadCount(JsonFields& fields, const std::string& field,
                                                  int64_t most, int64_t least) {
  std::optional<int64_t> value;
  BH_RETURN_IF_ERROR(fields.Read(field, &value));
  if (!value.has_value()) return std::optional<uint32_t>();
  if (*value < least || *value > most) {
    return InvalidField(field, absl::StrCat(*value, " is outside ", least, " to ", most),
                        reason::kInvalidValue,
                        {{"value", absl::StrCat(*value)}, {"limit", absl::StrCat(most)}});
  }
  return std::optional<uint32_t>(static_cast<uint32_t>(*value));
}

absl::Status ReadTruncation(JsonFields& fields, int64_t most, v1::GenerateRequest* request) {
  constexpr char kField[] = "truncate_prompt_tokens";
  std::optional<uint32_t> tokens = kTruncateToFit;
  const Json* value = fields.Find(kField);
  if (value == nullptr) return absl::OkStatus();
  if (*value != -1) {
    BH_ASSIGN_OR_RETURN(tokens, ReadCount(fields, kField, most));
  }
  if (tokens.has_value()) request->set_truncate_prompt_tokens(*tokens);
  return absl::OkStatus();
}

absl::Status ReadMaxTokens(JsonFields& fields, const std::string& name, int least,
                           int max_model_len, v1::GenerateRequest* request) {
  std::optional<int64_t> value;
  BH_RETURN_IF_ERROR(fields.Read(name, &value));
  if (!value.has_value()) return absl::OkStatus();
  if (*value > max_model_len) {
    return InvalidField(
        name,
        absl::StrCat(*value, " is more than the ", max_model_len,
                     " tokens that prompt and answer have together (max_model_len); ask for fewer"),
        reason::kInvalidValue,
        {{"value", absl::StrCat(*value)}, {"limit", absl::StrCat(max_model_len)}});
  }
  if (*value < least) return WrongValue(name, Json(*value), absl::StrCat("at least ", least));
  request->mutable_stopping()->set_max_tokens(static_cast<uint32_t>(*value));
  return absl::OkStatus();
}

absl::Status ReadCallFields(JsonFields& fields, const RequestRules& rules, std::string* model,
                            v1::GenerateRequest* request) {
  std::optional<std::string> name, salt;
  BH_RETURN_IF_ERROR(fields.Read("model", &name));
  *model = name.value_or("");
  request->set_model(*model);
  BH_RETURN_IF_ERROR(fields.Read("cache_salt", &salt));
  if (salt.has_value()) request->set_cache_salt(*salt);
  BH_RETURN_IF_ERROR(ReadPriority(fields, rules, request));
  return ReadUnused(fields);
}

absl::Status ReadGenerationOptions(JsonFields& fields, const RequestRules& rules,
                                   GenerationOptions* options, v1::GenerateRequest* request) {
  BH_RETURN_IF_ERROR(ReadCallFields(fields, rules, &options->model, request));
  std::optional<int64_t> n;
  BH_RETURN_IF_ERROR(fields.Read("n", &n));
  if (n.has_value() && (*n < 1 || *n > kMaxChoices)) {
    return WrongValue("n", Json(*n), absl::StrCat("1 to ", kMaxChoices));
  }
  options->n = static_cast<int>(n.value_or(1));
  BH_RETURN_IF_ERROR(
      fields.Refuse({"best_of"}, {options->n}, "only all n choices can be returned; leave it out"));
  BH_RETURN_IF_ERROR(ReadStreaming(fields, options));
  BH_RETURN_IF_ERROR(ReadSampling(fields, request->mutable_sampling()));
  BH_RETURN_IF_ERROR(ReadPenalties(fields, request->mutable_sampling()));
  BH_RETURN_IF_ERROR(ReadStopping(fields, request));
  BH_RETURN_IF_ERROR(ReadTruncation(fields, std::numeric_limits<int32_t>::max(), request));
  BH_RETURN_IF_ERROR(ReadStructured(fields, request, &options->form_field));
  std::optional<bool> skip_special, as_ids, with_ids;
  BH_RETURN_IF_ERROR(fields.Read("skip_special_tokens", &skip_special));
  options->skip_special_tokens = skip_special.value_or(true);
  request->mutable_output()->set_skip_special_tokens(options->skip_special_tokens);
  BH_RETURN_IF_ERROR(fields.Read("return_tokens_as_token_ids", &as_ids));
  options->tokens_as_ids = as_ids.value_or(false);
  BH_RETURN_IF_ERROR(fields.Read("return_token_ids", &with_ids));
  options->token_ids = with_ids.value_or(false);
  request->mutable_output()->set_prompt_token_ids(options->token_ids);
  return absl::OkStatus();
}

absl::Status ReadUnused(JsonFields& fields) {
  fields.Ignore({"user", "metadata", "store", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "request_id",
                 "rid", "session_id", "spaces_between_special_tokens"});
  const Json object = Json::object(), list = Json::array();
  BH_RETURN_IF_ERROR(fields.Refuse(
      {"use_beam_search", "watermarking", "return_weight_versions", "return_token_offsets",
       "return_prompt_text", "return_hidden_states", "return_mm_kwargs", "no_stop_trim"},
      {false}));
  BH_RETURN_IF_ERROR(
      fields.Refuse({"detokenize", "separate_reasoning", "stream_reasoning"}, {true}));
  BH_RETURN_IF_ERROR(fields.Refuse({"vllm_xargs", "kv_transfer_params", "ec_transfer_params",
                                    "media_io_kwargs", "mm_processor_kwargs"},
                                   {object}));
  BH_RETURN_IF_ERROR(fields.Refuse({"logits_processors", "logprob_token_ids"}, {list}));
  BH_RETURN_IF_ERROR(fields.Refuse({"length_penalty", "stream_interval"}, {1}));
  BH_RETURN_IF_ERROR(fields.Refuse({"routed_experts_prompt_start"}, {0}));
  BH_RETURN_IF_ERROR(fields.Refuse({"thinking_token_budget"}, {-1}));
  BH_RETURN_IF_ERROR(fields.Refuse({"truncation_side"}, {"left"}, "only left is supported"));
  BH_RETURN_IF_ERROR(fields.Refuse(
      {"repetition_detection"},
      {object, {{"max_pattern_size", 0}, {"min_pattern_size", 0}, {"min_count", 0}}}));
  BH_RETURN_IF_ERROR(
      fields.Refuse({"cache_prompt"}, {true},
                    "every prompt is cached, if the server has a prefix cache; leave it out"));
  return fields.Refuse({"prediction", "mm_payload"}, {});
}

}  // namespace bulkhead
