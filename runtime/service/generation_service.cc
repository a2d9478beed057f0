#include "runtime/service/generation_service.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "memory/status.h"
#include "runtime/service/generate_stream.h"
#include "runtime/service/generate_unary.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/refusal.h"
#include "runtime/service/score_call.h"

namespace bulkhead {
namespace {

absl::StatusOr<const Tokenizer*> TokenizerOf(const ServingParts& parts) {
  if (parts.rules.tokenizer != nullptr) return parts.rules.tokenizer;
  return WithReason(absl::FailedPreconditionError(
                        "the model has no tokenizer.json; it understands token ids alone"),
                    reason::kTextNotSupported);
}

absl::Status TokenizeInto(const ServingParts& parts, const v1::TokenizeRequest& request,
                          v1::TokenizeResponse& response) {
  BH_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, TokenizerOf(parts));
  const bool add_special = !request.has_add_special_tokens() || request.add_special_tokens();
  const absl::StatusOr<std::vector<TokenId>> ids = tokenizer->Encode(request.text(), add_special);
  if (!ids.ok()) return InvalidField("text", ids.status().message());
  response.mutable_token_ids()->mutable_ids()->Add(ids->begin(), ids->end());
  return absl::OkStatus();
}

absl::Status DetokenizeInto(const ServingParts& parts, const v1::DetokenizeRequest& request,
                            v1::DetokenizeResponse& response) {
  BH_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, TokenizerOf(parts));
  const int vocab_size = std::max(parts.rules.vocab_size, tokenizer->vocab_size());
  BH_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                      CheckedTokenIds(request.token_ids().ids(), vocab_size, "token_ids"));
  const bool skip = !request.has_skip_special_tokens() || request.skip_special_tokens();
  response.set_text(tokenizer->Decode(ids, skip));
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* GenerationService::Generate(grpc::CallbackServerContext* context,
                                                      const v1::GenerateRequest* request,
                                                      v1::GenerateResponse* response) {
  return GenerateUnary::Run(core_, context, *request, response);
}

grpc::ServerWriteReactor<v1::GenerateEvent>* GenerationService::GenerateStream(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return bulkhead::GenerateStream::Run(core_, context, *request);
}

grpc::ServerUnaryReactor* GenerationService::Score(grpc::CallbackServerContext* context,
                                                   const v1::ScoreRequest* request,
                                                   v1::ScoreResponse* response) {
  return ScoreCall::Run(core_, context, *request, response);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const v1::TokenizeRequest* request,
                                                      v1::TokenizeResponse* response) {
  const auto parts = core_->state.ForControl(*request);
  if (!parts.ok()) return Answer(*context, parts.status());
  // Request and response live until Finish.
  return Convert(context, request->text().size(), TextWorker::kLongTextBytes,
                 [=, parts = *parts] { return TokenizeInto(*parts, *request, *response); });
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const v1::DetokenizeRequest* request,
                                                        v1::DetokenizeResponse* response) {
  const auto parts = core_->state.ForControl(*request);
  if (!parts.ok()) return Answer(*context, parts.status());
  const size_t bytes = request->token_ids().ids_size() * sizeof(TokenId);
  return Convert(context, bytes, TextWorker::kLongTokenIds * sizeof(TokenId),
                 [=, parts = *parts] { return DetokenizeInto(*parts, *request, *response); });
}

grpc::ServerUnaryReactor* GenerationService::Convert(grpc::CallbackServerContext* context,
                                                     size_t bytes, size_t most_here_bytes,
                                                     std::function<absl::Status()> convert) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto work = [=, this, convert = std::move(convert)] {
    core_->heap_trimmer.TrimLater();
    reactor->Finish(EndWith(*context, context->IsCancelled()
                                          ? absl::CancelledError("cancelled by the client")
                                          : convert()));
  };
  if (bytes <= most_here_bytes) {
    work();
    return reactor;
  }
  const absl::Status taken = core_->text_worker.Post(bytes, std::move(work));
  if (!taken.ok()) reactor->Finish(EndWith(*context, taken));
  return reactor;
}

}  // namespace bulkhead
