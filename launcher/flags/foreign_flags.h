// Flags of `vllm serve`, llama.cpp's `llama-server` and SGLang that are not ours.
#pragma once

#include "absl/strings/string_view.h"

namespace bulkhead {

// What to give instead of `name` ("--api-key"), or why there is nothing; empty for any other name.
absl::string_view HintOfForeignFlag(absl::string_view name);

}  // namespace bulkhead
