#include "runtime/service/grpc/vllm_embed_call.h"

#include <utility>

#include "base/status.h"
#include "runtime/service/prompt_builder.h"
#include "vllm/grpc/engine/vllm_engine.pb.h"

namespace bulkhead {

absl::Status VllmEmbedCall::Read(CallRequest& request, v1::GenerateRequest& message) {
  ::vllm::grpc::engine::EmbedRequest asked;
  BH_RETURN_IF_ERROR(request.Parse(asked));
  BH_RETURN_IF_ERROR(RefuseUnknownFields(asked, ""));
  message.set_request_id(asked.request_id());
  message.mutable_token_ids()->mutable_ids()->Swap(asked.mutable_tokenized()->mutable_input_ids());
  message.mutable_output()->set_embedding(true);
  return absl::OkStatus();
}

MessagePieces VllmEmbedCall::ResponseLocked() {
  v1::Finished finished;
  finished.ParseFromString(FinishedLocked());
  ::vllm::grpc::engine::EmbedResponse response;
  response.mutable_embedding()->Swap(finished.mutable_embedding());
  response.set_prompt_tokens(finished.usage().prompt_tokens());
  response.set_embedding_dim(static_cast<uint32_t>(response.embedding_size()));
  return {response.SerializeAsString()};
}

}  // namespace bulkhead
