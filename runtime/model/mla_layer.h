// Multi-head latent attention (MLA) in its absorbed form at every position. A token's
// vector of kv_rank + rope_dim numbers is what is cached, and what all heads attend to: with W_k
// and W_v of a head as kv_b_proj has them, its query is [W_k^T q, rotated q], and what it adds is
// W_v times the sum of the vectors' first kv_rank columns.
#pragma once

#include <vector>

#include "runtime/model/decoder.h"
#include "runtime/model/family.h"
#include "shard/config_fields.h"

namespace bulkhead::families {

// kv_lora_rank, q_lora_rank (null: none), qk_nope_head_dim, qk_rope_head_dim and v_head_dim, before
// ReadSizes; after it SetLatentHeads.
void ReadLatents(ConfigFields& fields, ModelConfig& config);
void SetLatentHeads(ConfigFields& fields, ModelConfig& config);

// What comes before o_proj, as DeepSeek names it.
void LatentTensors(const ModelConfig& config, TensorTable& table);
std::vector<BufferRow> LatentBuffers(const RankShard& shard);
// The heads' sums of V [T, h value_dim] of x, the norm of the residual stream.
MatrixView LatentAttention(Decoder& decoder, ConstMatrixView x);

}  // namespace bulkhead::families
