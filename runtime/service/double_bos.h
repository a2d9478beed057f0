// A text that was rendered with a chat template begins with the BOS token already, and the
// tokenizer's post-processor puts another one before it: the model never saw two.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "runtime/engine/request.h"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

// Whether `prompt`, a text's tokens with special tokens added, begins with what the tokenizer adds
// and then the same again.
bool BeginsWithTwoBos(const Tokenizer& tokenizer, absl::Span<const TokenId> prompt);

// Says so in the log, once a minute at most. `now_ns`: monotonic. Any thread.
void WarnOfTwoBos(int64_t now_ns);

}  // namespace bulkhead
