// KV groups: how the layers of a model with windows share the blocks of the pool. A pure function:
// every rank finds the same groups, and so does `plan`.
#pragma once

#include "memory/limits.h"
#include "shard/model_config.h"

namespace bulkhead {

// Sets limits.kv_groups and kv_group_of_layer for sequences of up to limits.max_model_len tokens,
// so that one of that length takes the fewest bytes. Group 0 has the layers without a window; where
// all have one, it has some of them, since cached prefixes are found by its blocks.
void SetKvGroups(const ModelConfig& config, Limits& limits);

}  // namespace bulkhead
