// Checks for every request with a prompt: unknown fields, names, and the prompt's tokens. Errors as
// in request_builder.h.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {

// UNSUPPORTED_PARAMETER for a field that this version would drop silently. `path` names the
// containing message, followed by a dot, unless it is the request itself.
absl::Status RefuseUnknownFields(const google::protobuf::Message& message, const std::string& path);

// request_id, cache_salt, model.
absl::Status CheckNames(const v1::GenerateRequest& request, const RequestRules& rules);

// Request::adapter of the adapter with this name; 0: there is none.
int AdapterNamed(absl::string_view model, const RequestRules& rules);
// Chooses the adapter named by `model`, which a valid request has.
void SetAdapter(absl::string_view model, const RequestRules& rules, Request& request);
// The names of the model and of the adapters.
std::vector<std::string> ModelNames(const RequestRules& rules);

// truncate_prompt_tokens that keeps what max_model_len leaves besides max_tokens; vLLM's -1.
inline constexpr uint32_t kTruncateToFit = std::numeric_limits<uint32_t>::max();

// The prompt's tokens, truncated as asked: at least one, leaving at least `reserved_tokens` tokens
// of max_model_len, all valid ids of the model.
absl::StatusOr<std::vector<TokenId>> BuildPrompt(const v1::GenerateRequest& request,
                                                 const RequestRules& rules, int reserved_tokens);

// Whether `prompt`, a text's tokens including special tokens, starts with the tokenizer's prefix
// twice: text rendered with a chat template already starts with BOS, and the tokenizer's
// post-processor adds another one, which the model was not trained on.
bool BeginsWithTwoBos(const Tokenizer& tokenizer, absl::Span<const TokenId> prompt);

// Logs a warning, at most once a minute. `now_ns`: monotonic. Any thread.
void WarnOfTwoBos(int64_t now_ns);

}  // namespace bulkhead
