// `bulkhead score`: log probabilities of given texts, without a server; also under mpirun.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Input: JSON lines {"text"} or {"prompt_token_ids"}. Results, in input order: {"index", "tokens",
// "nll"}: the number of tokens including the post-processor's, truncated to max_model_len, and the
// sum over all but the first of -ln p(token | previous tokens); or {"index", "error"}. Returns the
// final status with the exit code; 1 if a line failed.
absl::Status RunScore(const ScoreOptions& options);

}  // namespace bulkhead
