// Multi-head latent attention (MLA) in its absorbed form at every position. A token's vector of
// kv_rank + rope_dim numbers is cached, and all heads attend to it: with W_k and W_v of a head from
// kv_b_proj, its query is [W_k^T q, rotated q], and its output is W_v times the weighted sum of the
// vectors' first kv_rank columns.
#pragma once

#include <vector>

#include "runtime/model/decoder.h"
#include "runtime/model/family.h"
#include "shard/config_fields.h"

namespace bulkhead::families {

// Reads kv_lora_rank, q_lora_rank (null: none), qk_nope_head_dim, qk_rope_head_dim, v_head_dim.
// Call before ReadSizes, and SetLatentHeads after it.
void ReadLatents(ConfigFields& fields, ModelConfig& config);
void SetLatentHeads(ConfigFields& fields, ModelConfig& config);

// The tensors before o_proj, with DeepSeek's names.
void LatentTensors(const ModelConfig& config, TensorTable& table);
std::vector<BufferRow> LatentBuffers(const RankShard& shard);
// The heads' attention outputs [T, h value_dim] for x, the norm of the residual stream.
MatrixView LatentAttention(Decoder& decoder, ConstMatrixView x);

}  // namespace bulkhead::families
