// Flags of `vllm serve` and `vllm bench serve`, llama.cpp's `llama-server` and SGLang that are not
// ours.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead {

// What to give instead of `name` ("--api-key") to a command with `flags`, or why there is nothing;
// empty for any other name, and where it is none of `flags`.
absl::string_view HintOfForeignFlag(absl::string_view name, absl::Span<const std::string> flags);

}  // namespace bulkhead
