// The rules of a rank 0's requests, in `serve` and offline.
#pragma once

#include "launcher/flags/options.h"
#include "launcher/group/rank_engine.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {

// The engine and its tokenizer outlive them. The served name is --model's. Grammars have the bytes
// of a server's host budget, offline as many as a server with all its quotas has.
RequestRules RequestRulesOf(const RankEngine& engine, const EngineOptions& options);

}  // namespace bulkhead
