// Functions for a group with a draft model.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "launcher/group/rank_engine.h"

namespace bulkhead {

// The draft model and its number of draft tokens, in one line.
std::string DraftLine(const EngineOptions& options, const RankEngine& engine);

// Drafts of another vocabulary would be valid ids, and nearly always wrong: INVALID_ARGUMENT with
// exit code 2. `tokenizer`: the model's. Ok if tokens cannot be compared.
absl::Status CompareTokenizers(const Tokenizer& tokenizer, const ModelSource& source);

}  // namespace bulkhead
