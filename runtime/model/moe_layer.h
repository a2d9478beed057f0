// The MLP of a layer with a mixture of experts: a router, experts of which a token takes a few, and
// often a shared one that every token takes.
#pragma once

#include <vector>

#include "runtime/model/decoder.h"
#include "runtime/model/family.h"

namespace bulkhead::families {

// Modules of a layer in the checkpoint.
struct MoeNames {
  const char* router = "mlp.gate";
  const char* correction_bias = "mlp.gate.e_score_correction_bias";
  const char* expert_scales = nullptr;  // if config.moe.expert_scales is set; includes the field
  const char* gate = "mlp.experts.$0.gate_proj";  // of each expert
  const char* up = "mlp.experts.$0.up_proj";
  const char* down = "mlp.experts.$0.down_proj";
  // If all experts share a tensor: [E, 2f, D] gates, then ups, and [E, D, f]; or transposed, [E, D,
  // 2f] and [E, f, D]. With clamped_swiglu, gates and ups are interleaved.
  const char* fused_gate_up = nullptr;
  const char* fused_down = nullptr;
  bool fused_is_transposed = false;
  const char* fused_gate_up_bias = nullptr;  // with moe.biases, [E, 2f] and [E, D]
  const char* fused_down_bias = nullptr;
  const char* shared_gate = "mlp.shared_expert.gate_proj";
  const char* shared_up = "mlp.shared_expert.up_proj";
  const char* shared_down = "mlp.shared_expert.down_proj";
  const char* shared_output_gate = "mlp.shared_expert_gate";
};

void MoeTensors(const MoeNames& names, const ModelConfig& config, TensorTable& table);
std::vector<BufferRow> MoeBuffers(const RankShard& shard);
// Routes tokens to experts by x, the norm of the residual stream.
void RouteMoe(Decoder& decoder, ConstMatrixView x);
// Adds the experts' sum for x, the norm of the residual stream.
absl::Status AddRoutedMoe(Decoder& decoder, ConstMatrixView x);
// Routes the tokens and adds the experts' sum.
absl::Status AddMoe(Decoder& decoder, ConstMatrixView x);

}  // namespace bulkhead::families
