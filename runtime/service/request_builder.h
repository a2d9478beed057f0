// BuildRequest: converts a client's message to a validated Request. Every number is checked, every
// default filled in: the request overrides generation_config.json, which overrides temperature 1.
// Shared by the server and the offline commands; independent of gRPC. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/engine/request.h"
#include "runtime/structured/grammar_cache.h"
#include "runtime/tokenizer/tokenizer.h"
#include "shard/model_config.h"

namespace bulkhead {

inline constexpr int kMaxStopStrings = 16;
inline constexpr int kMaxStopStringBytes = 256;
inline constexpr int kMaxStopTokenIds = 256;
inline constexpr int kMaxRequestIdBytes = 128;
inline constexpr int kMaxLogitBiases = 1024;
inline constexpr int kMaxAllowedTokenIds = 1024;
inline constexpr int kMaxBadWords = 64;
inline constexpr int kMaxBadWordBytes = 128;

// Rules of an embedding model (launcher/planning/embedding_config.h).
struct EmbeddingRules {
  int size = 0;  // 0: not an embedding model
  bool normalizes = true;
  std::string why_not;  // why it is not an embedding model
  bool alone = false;   // there are no logits: nothing is generated or scored
};

// A LoRA adapter: what requests call it, and its folder.
struct ServedAdapter {
  std::string name;
  std::string dir;
};

struct RequestRules {
  const Tokenizer* tokenizer = nullptr;  // outlives the rules; null: token ids only
  std::string model;                     // the value of --model
  std::vector<std::string> served_model_names;
  std::vector<ServedAdapter> adapters;  // numbered from 1, as Request::adapter
  int vocab_size = 0;                   // of the model, > 0
  int max_model_len = 0;                // prompt and generated tokens, > 1
  int started_max_model_len = 0;        // before an operator lowered it; 0: unchanged
  int num_speculative_tokens = 0;
  int default_max_tokens = 512;
  int max_logprobs = 20;
  bool has_priorities = false;  // the policy is SchedulingPolicy::kPriority
  GenerationDefaults defaults;
  EmbeddingRules embedding;
  std::shared_ptr<structured::GrammarCache> grammars = nullptr;  // null: no structured output
};

// Errors name field, value, limit and remedy and carry typed details (refusal.h): INVALID_ARGUMENT,
// and NOT_FOUND for an unknown model. A prompt must leave room for at least one token, so it has at
// most max_model_len - 1; with max_tokens 0 (prompt_logprobs) or for an embedding max_model_len.
// The caller adds the sink for that. An explicit max_tokens beyond max_model_len is valid: the
// generation then ends with kModelLength. A missing seed is generated. An empty request_id stays
// empty.
absl::StatusOr<Request> BuildRequest(const v1::GenerateRequest& request, const RequestRules& rules);

// The same for a text to score: nothing is generated, so it may have max_model_len tokens. The
// caller adds the sink for the logits.
absl::StatusOr<Request> BuildScoreRequest(const v1::ScoreRequest& request,
                                          const RequestRules& rules);

// Whether tokens are generated: the prompt must then leave room for one.
bool Generates(const v1::GenerateRequest& request);

// The effective `max_tokens`: at most what max_model_len leaves.
int EffectiveMaxTokens(const Request& request, int max_model_len);

// INVALID_ARGUMENT naming `field` for an id outside [0, vocab_size).
absl::Status CheckTokenIds(const google::protobuf::RepeatedField<uint32_t>& ids, int vocab_size,
                           absl::string_view field);
// The ids in the engine's type, validated.
absl::StatusOr<std::vector<TokenId>> CheckedTokenIds(
    const google::protobuf::RepeatedField<uint32_t>& ids, int vocab_size, absl::string_view field);

}  // namespace bulkhead
