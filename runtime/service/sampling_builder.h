// The sampling part of a request: how logits are changed and a token is sampled. Errors as in
// request_builder.h.
#pragma once

#include "absl/status/statusor.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/engine/request.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {

absl::StatusOr<SamplingParams> BuildSampling(const v1::Sampling& asked, const RequestRules& rules);

// Penalties, biases, allowed ids, and bad words as tokens: each word as it is, and with a space
// before it unless that ends with the same tokens. (vLLM also drops the variant with a space if its
// number of tokens differs, and then lets such words pass.)
absl::StatusOr<LogitsParams> BuildLogits(const v1::Sampling& asked, const RequestRules& rules);

}  // namespace bulkhead
