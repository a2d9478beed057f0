#include "runtime/service/grpc/vllm_engine_messages.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "runtime/service/open_calls.h"
#include "runtime/service/packed_reader.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"
#include "runtime/service/text_worker.h"

namespace bulkhead {
namespace {

using vllm_api::GenerateComplete;
using vllm_api::GenerateResponse;
using vllm_api::GenerateStreamChunk;
using vllm_api::InputLogProbs;
using vllm_api::OutputLogProbs;
using vllm_api::TopLogProbs;

absl::Status Unsupported(absl::string_view field, absl::string_view description) {
  return InvalidField(field, description, reason::kUnsupportedParameter);
}

absl::Status CheckServed(const vllm_api::GenerateRequest& message) {
  const vllm_api::SamplingParams& params = message.sampling_params();
  if (params.has_grammar() || params.has_structural_tag()) {
    return Unsupported(
        params.has_grammar() ? "sampling_params.grammar" : "sampling_params.structural_tag",
        "is not supported; use json_schema, json_object, regex or choice");
  }
  if (message.has_mm_inputs() || message.extra_mm_inputs_size() > 0 || message.has_media_refs()) {
    const char* const field = message.has_mm_inputs()    ? "mm_inputs"
                              : message.has_media_refs() ? "media_refs"
                                                         : "extra_mm_inputs";
    return Unsupported(field, "the model reads text only; send no images, audio or video");
  }
  if (message.has_kv_transfer_params() || !message.kv_transfer_params_json().empty()) {
    return Unsupported(
        message.has_kv_transfer_params() ? "kv_transfer_params" : "kv_transfer_params_json",
        "this server does prefill and decode itself; route requests without disaggregation");
  }
  if (message.data_parallel_rank() != 0) {
    return InvalidField("data_parallel_rank",
                        absl::StrCat(message.data_parallel_rank(),
                                     " does not exist: there is one, 0; leave it out"));
  }
  if (message.stream() && params.has_prompt_logprobs()) {
    return Unsupported("sampling_params.prompt_logprobs",
                       "only an answer as a whole has them; send stream false");
  }
  return absl::OkStatus();
}

// -1 has a meaning in vLLM that is not served.
absl::StatusOr<uint32_t> NotNegative(absl::string_view field, int32_t value,
                                     absl::string_view remedy) {
  if (value >= 0) return static_cast<uint32_t>(value);
  return InvalidField(absl::StrCat("sampling_params.", field),
                      absl::StrCat(value, " is less than 0; ", remedy), reason::kInvalidValue,
                      {{"value", absl::StrCat(value)}, {"limit", "0"}});
}

absl::Status WithinLimit(absl::string_view field, uint32_t value, uint32_t limit,
                         absl::string_view remedy) {
  if (value <= limit) return absl::OkStatus();
  return InvalidField(absl::StrCat("sampling_params.", field),
                      absl::StrCat(value, " is more than the limit of ", limit, remedy),
                      reason::kInvalidValue,
                      {{"value", absl::StrCat(value)}, {"limit", absl::StrCat(limit)}});
}

absl::Status TakeSampling(vllm_api::SamplingParams& params, v1::Sampling& out) {
  if (params.has_temperature()) out.set_temperature(params.temperature());
  if (params.top_p() != 0) out.set_top_p(params.top_p());
  if (params.top_k() != 0) out.set_top_k(params.top_k());
  if (params.min_p() != 0) out.set_min_p(params.min_p());
  if (params.repetition_penalty() != 0) out.set_repetition_penalty(params.repetition_penalty());
  if (params.frequency_penalty() != 0) out.set_frequency_penalty(params.frequency_penalty());
  if (params.presence_penalty() != 0) out.set_presence_penalty(params.presence_penalty());
  // Any 64 bits are a seed.
  if (params.has_seed()) out.set_seed(static_cast<uint64_t>(int64_t{params.seed()}));
  for (const auto& [id, bias] : params.logit_bias()) {
    BH_ASSIGN_OR_RETURN(const uint32_t token,
                        NotNegative("logit_bias", id, "use ids of the vocabulary"));
    (*out.mutable_logit_bias())[token] = bias;
  }
  return absl::OkStatus();
}

void TakeStopping(vllm_api::SamplingParams& params, v1::Stopping& out) {
  if (params.has_max_tokens()) out.set_max_tokens(params.max_tokens());
  if (params.min_tokens() != 0) out.set_min_tokens(params.min_tokens());
  out.mutable_stop()->Swap(params.mutable_stop());
  out.mutable_stop_token_ids()->Swap(params.mutable_stop_token_ids());
  out.set_ignore_eos(params.ignore_eos());
  out.set_include_stop_in_output(params.include_stop_str_in_output());
}

void TakeConstraint(vllm_api::SamplingParams& params, v1::GenerateRequest& out) {
  using Params = vllm_api::SamplingParams;
  switch (params.constraint_case()) {
    case Params::kJsonSchema:
      out.mutable_structured()->mutable_json_schema()->swap(*params.mutable_json_schema());
      break;
    case Params::kRegex:
      out.mutable_structured()->mutable_regex()->swap(*params.mutable_regex());
      break;
    case Params::kJsonObject:
      if (params.json_object()) out.mutable_structured()->set_json_object(true);
      break;
    case Params::kChoice:
      out.mutable_structured()->mutable_choice()->mutable_texts()->Swap(
          params.mutable_choice()->mutable_choices());
      break;
    case Params::kGrammar:  // refused
    case Params::kStructuralTag:
    case Params::CONSTRAINT_NOT_SET:
      break;
  }
}

absl::Status TakeOutput(const vllm_api::SamplingParams& params, v1::GenerateRequest& out) {
  v1::Output& output = *out.mutable_output();
  output.set_text(false);
  output.set_skip_special_tokens(params.skip_special_tokens());
  if (params.has_logprobs()) {
    BH_ASSIGN_OR_RETURN(const uint32_t top,
                        NotNegative("logprobs", params.logprobs(), "ask for a number of them"));
    output.set_logprobs(top);
  }
  if (params.has_prompt_logprobs()) {
    BH_ASSIGN_OR_RETURN(const uint32_t top, NotNegative("prompt_logprobs", params.prompt_logprobs(),
                                                        "ask for a number of them"));
    output.set_prompt_logprobs(top);
  }
  if (params.has_truncate_prompt_tokens() && params.truncate_prompt_tokens() == -1) {
    out.set_truncate_prompt_tokens(kTruncateToFit);
  } else if (params.has_truncate_prompt_tokens()) {
    BH_ASSIGN_OR_RETURN(const uint32_t tokens,
                        NotNegative("truncate_prompt_tokens", params.truncate_prompt_tokens(),
                                    "send the number of tokens to keep, or -1"));
    out.set_truncate_prompt_tokens(tokens);
  }
  return absl::OkStatus();
}

void AppendFloat(float value, PackedBytes& out) {
  char bytes[sizeof(float)];  // little-endian, as are all supported machines
  std::memcpy(bytes, &value, sizeof(float));
  out.Append(absl::string_view(bytes, sizeof(float)));
}

// Both messages have the same field numbers.
constexpr int kLogprobsField = OutputLogProbs::kTokenLogprobsFieldNumber;
constexpr int kIdsField = OutputLogProbs::kTokenIdsFieldNumber;
constexpr int kTopsField = OutputLogProbs::kTopLogprobsFieldNumber;
static_assert(int{InputLogProbs::kTokenLogprobsFieldNumber} == kLogprobsField &&
              int{InputLogProbs::kTokenIdsFieldNumber} == kIdsField &&
              int{InputLogProbs::kTopLogprobsFieldNumber} == kTopsField);

std::string PackedTop(const v1::Token& token) {
  TopLogProbs top;
  for (const v1::TokenLogprob& one : token.top()) {
    top.add_values(one.logprob());
    top.add_token_ids(one.id());
  }
  std::string out;
  PackString(kTopsField, top.SerializeAsString(), &out);
  return out;
}

// Tokens as columns: OutputLogProbs and InputLogProbs without their ids.
class LogprobColumns {
 public:
  // `of_prompt`: InputLogProbs, whose first token has no log probability.
  explicit LogprobColumns(bool of_prompt) : of_prompt_(of_prompt) {}

  void Add(const v1::Token& token) {
    if (!of_prompt_ && !token.has_logprob()) return;
    any_ = true;
    if (of_prompt_) {
      std::string value;
      vllm_api::InputTokenLogProb logprob;
      if (token.has_logprob()) logprob.set_value(token.logprob());
      PackString(kLogprobsField, logprob.SerializeAsString(), &value);
      logprobs_.Append(value);
    } else {
      AppendFloat(token.logprob(), logprobs_);
    }
    if (token.top_size() > 0 || of_prompt_) {
      tops_.Append(PackedTop(token));
    }
    std::string id;
    PackVarint(token.id(), &id);
    ids_.Append(id);
  }

  // Moves the columns to `field` of a message; nothing if there are none.
  void TakeTo(int field, MessagePieces& out) {
    if (!any_) return;
    std::string head, ids_head;
    if (!of_prompt_) {
      PackHead(kLogprobsField, logprobs_.size(), &head);
    }
    PackHead(kIdsField, ids_.size(), &ids_head);
    const auto heads = static_cast<int64_t>(head.size() + ids_head.size());
    std::string tag;
    PackHead(field, heads + logprobs_.size() + ids_.size() + tops_.size(), &tag);
    out.push_back(tag + head);
    Move(logprobs_, out);
    out.push_back(std::move(ids_head));
    Move(ids_, out);
    Move(tops_, out);
  }

 private:
  static void Move(PackedBytes& bytes, MessagePieces& out) {
    for (std::string& piece : bytes.TakePieces()) out.push_back(std::move(piece));
  }

  const bool of_prompt_;
  bool any_ = false;
  PackedBytes logprobs_, ids_, tops_;
};

// Unset if it is 0, as in proto3.
void PackCount(int field, uint32_t value, std::string* out) {
  if (value != 0) PackNumber(field, value, out);
}

const char* ReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_EOS:
    case v1::FINISH_REASON_STOP_TOKEN:
    case v1::FINISH_REASON_STOP_STRING:
      return "stop";
    default:
      return "length";
  }
}

// The ids, then all short fields.
MessagePieces CompleteHead(const v1::Finished& finished, uint32_t index, PackedBytes& ids) {
  GenerateComplete rest;
  rest.set_finish_reason(ReasonName(finished.reason()));
  rest.set_prompt_tokens(finished.usage().prompt_tokens());
  rest.set_completion_tokens(finished.usage().completion_tokens());
  rest.set_cached_tokens(finished.usage().cached_prompt_tokens());
  rest.set_index(index);
  if (finished.has_stop_string()) rest.set_matched_stop_str(finished.stop_string());
  if (finished.has_stop_token_id()) rest.set_matched_token_id(finished.stop_token_id());
  MessagePieces out;
  std::string head;
  PackHead(GenerateComplete::kOutputIdsFieldNumber, ids.size(), &head);
  out.push_back(std::move(head));
  for (std::string& piece : ids.TakePieces()) out.push_back(std::move(piece));
  out.push_back(rest.SerializeAsString());
  return out;
}

MessagePieces AsComplete(MessagePieces pieces) {
  std::string head;
  PackHead(GenerateResponse::kCompleteFieldNumber, SizeOf(pieces), &head);
  pieces.insert(pieces.begin(), std::move(head));
  return pieces;
}

}  // namespace

absl::StatusOr<VllmGeneration> TakeGeneration(vllm_api::GenerateRequest& message,
                                              int max_model_len) {
  BH_RETURN_IF_ERROR(CheckServed(message));
  const uint32_t max_tokens = message.sampling_params().max_tokens();
  BH_RETURN_IF_ERROR(WithinLimit("max_tokens", max_tokens, static_cast<uint32_t>(max_model_len),
                                 ", max_model_len; ask for fewer"));
  BH_RETURN_IF_ERROR(
      WithinLimit("n", message.sampling_params().n(), kMaxChoices, " choices; ask for fewer"));
  VllmGeneration out;
  v1::GenerateRequest& request = out.request;
  request.mutable_request_id()->swap(*message.mutable_request_id());
  if (message.has_tokenized()) {
    request.mutable_token_ids()->mutable_ids()->Swap(
        message.mutable_tokenized()->mutable_input_ids());
  } else if (message.has_text()) {
    request.mutable_text()->swap(*message.mutable_text());
  }
  vllm_api::SamplingParams& params = *message.mutable_sampling_params();
  BH_RETURN_IF_ERROR(TakeSampling(params, *request.mutable_sampling()));
  TakeStopping(params, *request.mutable_stopping());
  TakeConstraint(params, request);
  BH_RETURN_IF_ERROR(TakeOutput(params, request));
  if (params.n() > 1) out.n = static_cast<int>(params.n());
  if (out.n > 1 && request.text().size() > TextWorker::kLongTextBytes) {
    return InvalidField(
        "text",
        absl::StrCat(request.text().size(), " bytes of text with n > 1 are more than the limit of ",
                     TextWorker::kLongTextBytes,
                     ": each choice would tokenise it; send `tokenized`"));
  }
  out.stream = message.stream();
  return out;
}

std::string PackChunk(absl::string_view delta, VllmCounts& counts, PackedBytes& ids) {
  LogprobColumns logprobs(/*of_prompt=*/false);
  std::string packed_ids;
  PackedReader reader(delta);
  v1::Token token;
  while (reader.NextToken(v1::Delta::kTokensFieldNumber, &token)) {
    PackVarint(token.id(), &packed_ids);
    logprobs.Add(token);
    ++counts.completion_tokens;
  }
  ids.Append(packed_ids);
  std::string chunk;
  PackString(GenerateStreamChunk::kTokenIdsFieldNumber, packed_ids, &chunk);
  PackCount(GenerateStreamChunk::kPromptTokensFieldNumber, counts.prompt_tokens, &chunk);
  PackCount(GenerateStreamChunk::kCompletionTokensFieldNumber, counts.completion_tokens, &chunk);
  MessagePieces pieces;
  logprobs.TakeTo(GenerateStreamChunk::kOutputLogprobsFieldNumber, pieces);
  for (const std::string& piece : pieces) chunk += piece;
  PackCount(GenerateStreamChunk::kIndexFieldNumber, counts.index, &chunk);
  std::string out;
  PackString(GenerateResponse::kChunkFieldNumber, chunk, &out);
  return out;
}

MessagePieces PackComplete(const v1::Finished& finished, uint32_t index, PackedBytes& ids) {
  return AsComplete(CompleteHead(finished, index, ids));
}

MessagePieces PackComplete(absl::string_view response, uint32_t index) {
  LogprobColumns output(/*of_prompt=*/false), prompt(/*of_prompt=*/true);
  PackedBytes ids;
  v1::Finished finished;
  v1::Token token;
  std::string id;
  PackedReader reader(response);
  while (reader.Next()) {
    const auto bytes = static_cast<int>(reader.bytes().size());
    switch (reader.field()) {
      case v1::GenerateResponse::kTokensFieldNumber:
        BH_CHECK(token.ParseFromArray(reader.bytes().data(), bytes));
        id.clear();
        PackVarint(token.id(), &id);
        ids.Append(id);
        output.Add(token);
        break;
      case v1::GenerateResponse::kPromptLogprobsFieldNumber:
        BH_CHECK(token.ParseFromArray(reader.bytes().data(), bytes));
        prompt.Add(token);
        break;
      case v1::GenerateResponse::kFinishedFieldNumber:
        BH_CHECK(finished.ParseFromArray(reader.bytes().data(), bytes));
        break;
      default:
        break;
    }
  }
  MessagePieces out = CompleteHead(finished, index, ids);
  output.TakeTo(GenerateComplete::kOutputLogprobsFieldNumber, out);
  prompt.TakeTo(GenerateComplete::kInputLogprobsFieldNumber, out);
  return AsComplete(std::move(out));
}

}  // namespace bulkhead
