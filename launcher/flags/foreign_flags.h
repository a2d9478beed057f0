// Flags of `vllm serve` and `vllm bench serve`, llama.cpp's `llama-server` and SGLang that are not
// ours.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead {

// The replacement for `name` ("--api-key") in a command with `flags`, or why there is none; empty
// for any other name, and if the replacement is not in `flags`.
absl::string_view HintOfForeignFlag(absl::string_view name, absl::Span<const std::string> flags);

}  // namespace bulkhead
