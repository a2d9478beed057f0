// POST /v1/embeddings.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "runtime/service/http/completion_request.h"
#include "runtime/service/http/embedding_format.h"
#include "runtime/service/http/generation_run.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/http/parsed_body.h"
#include "runtime/service/http/routes.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

constexpr int kMaxInputs = 2048;  // OpenAI's

absl::Status ReadFormat(JsonFields& fields, const EmbeddingRules& rules,
                        EmbeddingOptions* options) {
  std::optional<std::string> format;
  BH_RETURN_IF_ERROR(fields.Read("encoding_format", &format));
  if (format.has_value() && *format != "float" && *format != "base64") {
    return WrongValue("encoding_format", Json(*format), "\"float\" or \"base64\"");
  }
  options->base64 = format == "base64";
  options->normalizes = rules.normalizes;
  BH_ASSIGN_OR_RETURN(const std::optional<uint32_t> dimensions,
                      ReadCount(fields, "dimensions", rules.size, /*least=*/1));
  if (dimensions.has_value()) options->dimensions = static_cast<int>(*dimensions);
  BH_RETURN_IF_ERROR(fields.Refuse({"embed_dtype"}, {"float32"}));
  BH_RETURN_IF_ERROR(fields.Refuse({"endianness"}, {"native", "little"}));
  BH_RETURN_IF_ERROR(fields.Refuse({"padding"}, {"do_not_pad"}));
  return fields.Refuse({"use_activation"}, {rules.normalizes});
}

absl::StatusOr<GenerationJob> ReadJob(const Json& body, const RequestRules& rules,
                                      EmbeddingOptions* options) {
  if (rules.embedding.size == 0) {
    return NotSupported("/v1/embeddings",
                        absl::StrCat("the model gives no embeddings: ", rules.embedding.why_not));
  }
  GenerationJob job;
  job.prompt_field = "input";
  v1::GenerateRequest common;
  JsonFields fields(body);
  BH_RETURN_IF_ERROR(ReadCallFields(fields, rules, &job.options.model, &common));
  BH_RETURN_IF_ERROR(CheckNames(common, rules));
  std::optional<bool> add_special;
  BH_RETURN_IF_ERROR(fields.Read("add_special_tokens", &add_special));
  if (add_special.has_value()) common.set_add_special_tokens(*add_special);
  BH_RETURN_IF_ERROR(ReadTruncation(fields, rules.max_model_len, &common));
  BH_RETURN_IF_ERROR(ReadFormat(fields, rules.embedding, options));
  common.mutable_output()->set_embedding(true);
  common.mutable_output()->set_text(false);
  BH_RETURN_IF_ERROR(ReadPrompts(fields, job.prompt_field, common, 1, kMaxInputs, &job.prompts));
  BH_RETURN_IF_ERROR(fields.Finish());
  return job;
}

absl::Status Embed(const HttpContext& context, const ExchangePointer& exchange,
                   ParsedRequest parsed) {
  BH_ASSIGN_OR_RETURN(const auto parts, context.core->state.ForNewRequest());
  const RequestRules rules = RulesNow(*parts);
  EmbeddingOptions options;
  BH_ASSIGN_OR_RETURN(GenerationJob job, ReadJob(parsed.body, rules, &options));
  parsed.body = Json();
  BH_RETURN_IF_ERROR(CheckChoices(parts->control->Limits(), job));
  job.claim = std::move(parsed.claim);
  job.id = absl::StrCat("embd-", context.core->NewRequestId());
  const std::string model =
      job.options.model.empty() ? rules.served_model_names.front() : job.options.model;
  job.format =
      std::make_unique<EmbeddingFormat>(job.id, absl::ToUnixSeconds(absl::Now()), model, options);
  RunGeneration(context, std::move(job), exchange, parsed.origin);
  return absl::OkStatus();
}

}  // namespace

void ServeEmbeddings(const HttpContext& context, HttpRequest request,
                     const ExchangePointer& exchange) {
  ServeParsed(context, std::move(request), exchange, [&context, exchange](ParsedRequest parsed) {
    return Embed(context, exchange, std::move(parsed));
  });
}

}  // namespace bulkhead
