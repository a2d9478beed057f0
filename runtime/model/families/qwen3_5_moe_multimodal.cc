// The text part of a multimodal Qwen3.5-MoE, whose experts share tensors unless they are quantised.
#include "runtime/model/families/qwen_hybrid.h"

namespace bulkhead::families {

Family qwen3_5_moe_multimodal() {
  Family family = TextPart(qwen3_5_moe(), "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "",
                           "model.language_model.", "model.visual.*");
  family.spec.layer_tensors = [](const ModelConfig& c, int, TensorTable& t) {
    LayerNames names;
    if (c.quantization.method == QuantizationConfig::Method::kNone) {
      names.moe.fused_gate_up = "mlp.experts.gate_up_proj";
      names.moe.fused_down = "mlp.experts.down_proj";
    }
    LayerTensors(names, c, t);
  };
  return family;
}

}  // namespace bulkhead::families
