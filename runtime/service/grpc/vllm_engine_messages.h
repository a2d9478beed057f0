// Messages of vllm.grpc.engine.VllmEngine to and from those of bulkhead.v1. Independent of gRPC.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/service/call_transport.h"
#include "runtime/service/packed_message.h"
#include "vllm/grpc/engine/vllm_engine.pb.h"

namespace bulkhead {

namespace vllm_api = ::vllm::grpc::engine;

struct VllmGeneration {
  v1::GenerateRequest request;  // the request of choice 0
  int n = 1;
  bool stream = false;
};

// Takes the strings and ids out of `message`. INVALID_ARGUMENT naming a field of it that cannot be
// served, and for max_tokens beyond `max_model_len`, as in vLLM; other values are checked later, by
// BuildRequest.
absl::StatusOr<VllmGeneration> TakeGeneration(vllm_api::GenerateRequest& message,
                                              int max_model_len);

struct VllmCounts {
  uint32_t index = 0;  // the choice
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
};

// Converts a packed v1::Delta to a packed GenerateResponse with a chunk. Appends the ids, as
// varints, to `ids`, and counts them.
std::string PackChunk(absl::string_view delta, VllmCounts& counts, PackedBytes& ids);

// A packed GenerateResponse with a `complete`: for a stream, from the ids of its chunks, ...
MessagePieces PackComplete(const v1::Finished& finished, uint32_t index, PackedBytes& ids);
// ... or from a packed v1::GenerateResponse, which is at most 512 bytes shorter.
MessagePieces PackComplete(absl::string_view response, uint32_t index);

}  // namespace bulkhead
