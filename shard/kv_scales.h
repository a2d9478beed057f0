// The scales of an fp8 cache as stored in checkpoints (TensorRow::is_kv_scale): for keys and for
// values one number for all of a layer's KV heads, or one per head, in f32, bf16 or f16.
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

// The names that a row of scales may have; the first one present is read. NamesBesideKvScales:
// other names that may be present and are not read.
std::vector<std::string> KvScaleNames(const TensorRow& row);
std::vector<std::string> NamesBesideKvScales(const TensorRow& row);

// An existing tensor must have one number, or one for each KV head.
absl::Status CheckKvScales(const TensorIndex& index, const TensorRow& row);

// Fills the vectors of those targets that are scales, with 1 if the checkpoint lacks them.
// DATA_LOSS if one is not finite and above 0.
absl::Status ReadKvScales(const TensorIndex& index, absl::Span<const Checkpoint::Target> targets,
                          const RankShard& shard);

}  // namespace bulkhead
