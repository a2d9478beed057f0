// Granite MoE: Granite with experts, which are stored in one tensor.
#include "runtime/model/decoder_layer.h"
#include "runtime/model/families/granite.h"

namespace bulkhead::families {
namespace {

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadGraniteFields(fields, config);
  ReadMixtralMoe(fields, config);
}

constexpr LayerNames kLayer = {.moe = {.router = "block_sparse_moe.router.layer",
                                       .fused_gate_up = "block_sparse_moe.input_linear.weight",
                                       .fused_down = "block_sparse_moe.output_linear.weight"}};

}  // namespace

Family granitemoe() {
  return DecoderFamily<kLayer>("GraniteMoeForCausalLM", "granitemoe", ReadConfig);
}

}  // namespace bulkhead::families
