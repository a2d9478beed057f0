// --speculative-config: drafts as vLLM's JSON object describes them (vllm/config/speculative.py).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "runtime/engine/ngram_drafts.h"

namespace bulkhead {

// {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}.
// Without one of the last two it is as the other, and both are 5 without either, as in vLLM.
// INVALID_ARGUMENT for other methods and keys and numbers out of range, with what is possible.
absl::StatusOr<NgramDrafts> ParseSpeculativeConfig(const std::string& text);

}  // namespace bulkhead
