// KV groups: how the layers of a model with windows share the pool's blocks. A pure function: every
// rank and `plan` compute the same groups.
#pragma once

#include "memory/limits.h"
#include "shard/model_config.h"

namespace bulkhead {

// Sets limits.kv_groups and kv_group_of_layer for sequences of up to limits.max_model_len tokens,
// so that one of that length takes the fewest bytes. Group 0 has the layers without a window; if
// all layers have one, it has some of them, since cached prefixes are found by its blocks.
void SetKvGroups(const ModelConfig& config, Limits& limits);

}  // namespace bulkhead
