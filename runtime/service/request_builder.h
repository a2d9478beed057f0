// BuildRequest: from what a client sent to a Request that the engine may trust. Every number is
// checked here, every default filled in: the request wins over generation_config.json, that over
// temperature 1. Used by the server and by the offline commands alike; knows nothing of gRPC.
// Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/engine/request.h"
#include "runtime/tokenizer/tokenizer.h"
#include "shard/model_config.h"

namespace bulkhead {

inline constexpr int kMaxStopStrings = 16;
inline constexpr int kMaxStopStringBytes = 256;
inline constexpr int kMaxStopTokenIds = 256;
inline constexpr int kMaxRequestIdBytes = 128;

struct RequestRules {
  const Tokenizer* tokenizer = nullptr;  // outlives the rules; null: token ids alone
  std::vector<std::string> served_model_names;
  int vocab_size = 0;             // of the model, > 0
  int max_model_len = 0;          // prompt and generated tokens together, > 1
  int started_max_model_len = 0;  // what it was before an operator tightened it; 0: the same
  int default_max_tokens = 512;
  int max_logprobs = 20;
  GenerationDefaults defaults;
};

// Refusals name field, value, limit and remedy and carry typed details (refusal.h):
// INVALID_ARGUMENT, and NOT_FOUND for a model that is not served. A prompt leaves room for at least
// one token, so it has at most max_model_len - 1. An explicit max_tokens beyond max_model_len is
// legal: the generation then ends with kModelLength. A missing seed is drawn. An empty request_id
// stays empty.
absl::StatusOr<Request> BuildRequest(const v1::GenerateRequest& request, const RequestRules& rules);

// The same for a text to score: nothing is generated, so it may have max_model_len tokens. The sink
// for the logits is the caller's to add.
absl::StatusOr<Request> BuildScoreRequest(const v1::ScoreRequest& request,
                                          const RequestRules& rules);

// What `max_tokens` comes to: never more than max_model_len leaves.
int EffectiveMaxTokens(const Request& request, int max_model_len);

// INVALID_ARGUMENT naming `field` for an id outside [0, vocab_size).
absl::Status CheckTokenIds(const google::protobuf::RepeatedField<uint32_t>& ids, int vocab_size,
                           absl::string_view field);
// The ids as the engine counts them, checked.
absl::StatusOr<std::vector<TokenId>> CheckedTokenIds(
    const google::protobuf::RepeatedField<uint32_t>& ids, int vocab_size, absl::string_view field);

}  // namespace bulkhead
