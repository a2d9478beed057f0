// Detects prompts with two BOS tokens: text rendered with a chat template already starts with BOS,
// and the tokenizer's post-processor adds another one, which the model was not trained on.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "runtime/engine/request.h"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

// Whether `prompt`, a text's tokens including special tokens, starts with the tokenizer's prefix
// twice.
bool BeginsWithTwoBos(const Tokenizer& tokenizer, absl::Span<const TokenId> prompt);

// Logs a warning, at most once a minute. `now_ns`: monotonic. Any thread.
void WarnOfTwoBos(int64_t now_ns);

}  // namespace bulkhead
