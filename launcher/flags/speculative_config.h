// --speculative-config: drafts as in vLLM's JSON object (vllm/config/speculative.py).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "runtime/engine/drafts.h"

namespace bulkhead {

struct SpeculativeConfig {
  DraftOptions drafts;  // without draft_model_len, which comes from the model
  std::string model;    // the draft model, named as --model; empty: none

  bool by_model() const { return drafts.mtp || !model.empty(); }
  bool operator==(const SpeculativeConfig&) const = default;
};

// {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}.
// If one of the last two is absent it equals the other; if both are, they are 5, as in vLLM.
// {"method": "draft_model", "model": "DIR", "num_speculative_tokens": 5}, also without the method.
// {"method": "mtp", "num_speculative_tokens": 1}: by the model's layer for multi-token prediction.
// null: no drafts. INVALID_ARGUMENT for other methods, other keys and numbers out of range, naming
// what is accepted.
absl::StatusOr<SpeculativeConfig> ParseSpeculativeConfig(const std::string& text);

}  // namespace bulkhead
