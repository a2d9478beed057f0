// The fields of a body that completions and chats share: converted to messages of the public API,
// and to how the answer is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/service/http/json_fields.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {

struct GenerationOptions {
  std::string model;  // as asked for
  bool stream = false;
  bool include_usage = false;     // a last event with the usage
  bool continuous_usage = false;  // and the usage so far in each
  int n = 1;
  std::optional<int> logprobs;
  bool prompt_logprobs = false;  // the prompt's, in a list of their own
  bool tokens_as_ids = false;    // tokens of log probabilities as "token_id:5"
  bool token_ids = false;        // the ids of prompt and answer beside its text
  bool echo = false;             // the prompt's text before the answer's
  bool skip_special_tokens = true;
  std::string form_field;  // body field that set the answer's form; empty: no form
};

// Reads everything except prompt, messages, log probabilities and token limits. `request` gets what
// all choices share.
absl::Status ReadGenerationOptions(JsonFields& fields, const RequestRules& rules,
                                   GenerationOptions* options, v1::GenerateRequest* request);
// What generations and embeddings share: `model`, salt and priority, and ReadUnused.
absl::Status ReadCallFields(JsonFields& fields, const RequestRules& rules, std::string* model,
                            v1::GenerateRequest* request);
// Fields that every route takes, because they have no effect. INVALID_ARGUMENT
// (UNSUPPORTED_PARAMETER) if one that other servers know asks for something.
absl::Status ReadUnused(JsonFields& fields);
// At least `least`. INVALID_ARGUMENT for more than `max_model_len`, which is never possible.
absl::Status ReadMaxTokens(JsonFields& fields, const std::string& name, int least,
                           int max_model_len, v1::GenerateRequest* request);
// truncate_prompt_tokens: at most `most`, or -1 for what fits.
absl::Status ReadTruncation(JsonFields& fields, int64_t most, v1::GenerateRequest* request);
// `field` of the body has a number from `least` to `most`.
absl::StatusOr<std::optional<uint32_t>> ReadCount(JsonFields& fields, const std::string& field,
                                                  int64_t most, int64_t least = 0);

}  // namespace bulkhead
