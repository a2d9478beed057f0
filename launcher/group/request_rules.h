// The rules for requests on rank 0, in `serve` and offline.
#pragma once

#include "launcher/flags/options.h"
#include "launcher/group/rank_engine.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {

// The engine and its tokenizer outlive them. The served name is --model's. Grammars may use the
// bytes in a server's host budget; offline, those of a server with full quotas.
RequestRules RequestRulesOf(const RankEngine& engine, const EngineOptions& options);

}  // namespace bulkhead
