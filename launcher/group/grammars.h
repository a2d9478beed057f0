// The grammars of a rank 0's requests, for RequestRules.
#pragma once

#include <memory>

#include "launcher/group/startup.h"
#include "runtime/structured/grammar_cache.h"

namespace bulkhead {

// Null without a tokenizer, which outlives it. Of a server in the bytes of its host budget, of
// `run` in as many as a server with all its quotas has.
std::shared_ptr<structured::GrammarCache> GrammarsOf(const RankEngine& engine);

}  // namespace bulkhead
