// Linear attention of a layer by the gated delta rule: products of the norm, a causal convolution
// over q, k and v, the rule with its state, and a gate over the heads' normed outputs.
#pragma once

#include <vector>

#include "runtime/model/decoder.h"
#include "runtime/model/family.h"

namespace bulkhead::families {

// Modules of a layer in the checkpoint.
struct DeltaNames {
  const char* qkv = "linear_attn.in_proj_qkv";
  const char* z = "linear_attn.in_proj_z";
  const char* b = "linear_attn.in_proj_b";
  const char* a = "linear_attn.in_proj_a";
  // If fused into two tensors, per key head: q, k, its values and their z; and its values' b and a.
  const char* qkvz = nullptr;
  const char* ba = nullptr;
  const char* out = "linear_attn.out_proj";
};

// Rows of all tensors except the last product's.
void DeltaTensors(const DeltaNames& names, const ModelConfig& config, TensorTable& table);
std::vector<BufferRow> DeltaBuffers(const RankShard& shard);
// The heads' gated outputs [T, value heads x value_dim].
MatrixView DeltaAttention(Decoder& decoder, ConstMatrixView x);

}  // namespace bulkhead::families
