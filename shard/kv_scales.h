// The scales of an fp8 cache as checkpoints have them (TensorRow::is_kv_scale): of keys and of
// values a number for all of a layer's KV heads, or one for each, in f32, bf16 or f16.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "shard/shard_plan.h"
#include "shard/tensor_index.h"
#include "shard/tensor_row.h"
#include "shard/weight_loader.h"

namespace bulkhead {

// The names that a row of scales may have, the first one that is there counting; further ones that
// may be there, and are not read, are NamesBesideKvScales.
std::vector<std::string> KvScaleNames(const TensorRow& row);
std::vector<std::string> NamesBesideKvScales(const TensorRow& row);

// A tensor that is there has one number, or one for each KV head.
absl::Status CheckKvScales(const TensorIndex& index, const TensorRow& row);

// Fills the vectors of those targets that are scales, 1 where the checkpoint has none. DATA_LOSS
// where one is not above 0 and finite.
absl::Status ReadKvScales(const TensorIndex& index, absl::Span<const Checkpoint::Target> targets,
                          const RankShard& shard);

}  // namespace bulkhead
