// The files of a model that clients need to render chats and tokenise, as a zip.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/service/serving_state.h"

namespace bulkhead {

// tokenizer.json and, if present, tokenizer_config.json, special_tokens_map.json, config.json,
// generation_config.json and *.jinja in `dir`. The same files give the same bytes. NOT_FOUND
// without tokenizer.json; RESOURCE_EXHAUSTED for more than kMaxArchivedBesidesBytes (host_budget.h)
// besides it; INVALID_ARGUMENT for a file that cannot be read.
absl::StatusOr<std::shared_ptr<const TokenizerArchive>> MakeTokenizerArchive(
    const std::string& dir);

}  // namespace bulkhead
