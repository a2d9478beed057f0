// `bulkhead score`: how probable a model finds given texts; no server, under mpirun too.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Texts: JSON lines {"text"} or {"prompt_token_ids"}. Results, in their order: {"index", "tokens",
// "nll"}: the number of tokens with the post-processor's, cut at max_model_len, and the sum over
// all but the first of -ln p(token | those before it); or {"index", "error"}. The status to end
// with, carrying the exit code; 1 when a line failed.
absl::Status RunScore(const ScoreOptions& options);

}  // namespace bulkhead
