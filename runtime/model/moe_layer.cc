#include "runtime/model/moe_layer.h"

#include <string>

#include "absl/strings/substitute.h"

namespace bulkhead::families {
namespace {

// After the slots of the rest of the layer (decoder_layer.cc).
enum Weights {
  kRouter = 16,
  kCorrectionBias,
  kGateUp,
  kDown,
  kSharedGateUp,
  kSharedDown,
  kSharedOutputGate,
  kExpertScales
};
enum Buffers {
  kRouterLogits = 8,
  kGateUpOut,
  kActivated,
  kSharedGateUpOut,
  kSharedActivated,
  kSharedGateOut
};

// Tensors of one expert.
void FusedTensors(const MoeNames& names, const ModelConfig& c, TensorTable& t) {
  const int64_t hidden = c.hidden_size;
  const int64_t mlp = c.moe.intermediate_size;
  const int64_t rows = c.moe.clamped_swiglu ? 2 * mlp : mlp;  // split together
  for (int64_t begin = 0; begin < 2 * mlp; begin += rows) {
    t.FusedExperts(kGateUp, names.fused_gate_up, {begin, rows, 2 * mlp, names.fused_is_transposed},
                   hidden, Split::kExpertMlp, Split::kWhole);
  }
  t.FusedExperts(kDown, names.fused_down, {0, hidden, hidden, names.fused_is_transposed}, mlp,
                 Split::kWhole, Split::kExpertMlp);
  if (!c.moe.biases) return;
  t.FusedExpertBias(kGateUp, names.fused_gate_up_bias, 2 * mlp, Split::kExpertMlp);
  t.FusedExpertBias(kDown, names.fused_down_bias, hidden, Split::kWhole);
}

}  // namespace

void MoeTensors(const MoeNames& names, const ModelConfig& c, TensorTable& t) {
  const MoeConfig& moe = c.moe;
  const int64_t hidden = c.hidden_size;
  const int64_t mlp = moe.intermediate_size;
  t.Replicated(kRouter, names.router, moe.num_experts, hidden, moe.router_bias);
  if (moe.correction_bias) {
    t.Vector(kCorrectionBias, names.correction_bias, moe.num_experts, Split::kWhole);
  }
  if (moe.expert_scales) {
    t.Vector(kExpertScales, names.expert_scales, moe.num_experts, Split::kWhole);
  }
  for (int e = 0; e < moe.num_experts; ++e) {
    t.SetExpert(e);
    if (names.fused_gate_up != nullptr) {
      FusedTensors(names, c, t);
      continue;
    }
    for (const char* name : {names.gate, names.up}) {
      t.ColumnParallel(kGateUp, absl::Substitute(name, e), mlp, hidden, Split::kExpertMlp, false);
    }
    t.RowParallel(kDown, absl::Substitute(names.down, e), hidden, mlp, Split::kExpertMlp, false);
  }
  t.SetExpert(-1);
  const int64_t shared = moe.shared_intermediate_size;
  if (shared == 0) return;
  for (const char* name : {names.shared_gate, names.shared_up}) {
    t.ColumnParallel(kSharedGateUp, name, shared, hidden, Split::kSharedMlp, false);
  }
  t.RowParallel(kSharedDown, names.shared_down, hidden, shared, Split::kSharedMlp, false);
  if (moe.shared_gate) t.Replicated(kSharedOutputGate, names.shared_output_gate, 1, hidden);
}

std::vector<BufferRow> MoeBuffers(const RankShard& shard) {
  const MoeConfig& moe = shard.model->moe;
  if (moe.num_experts == 0) return {};
  const int k = moe.num_experts_per_tok;
  const int64_t mlp = shard.expert_mlp.size();
  const int64_t shared = shard.shared_mlp.size();
  constexpr int kStage = 3;  // used by no other half of a layer
  return {{.slot = kRouterLogits, .cols = moe.num_experts, .stage = kStage},
          {.slot = kGateUpOut, .cols = 2 * mlp, .stage = kStage, .rows_per_token = k},
          {.slot = kActivated,
           .cols = mlp,
           .product_input = true,
           .stage = kStage,
           .rows_per_token = k},
          {.slot = kSharedGateUpOut, .cols = 2 * shared, .stage = kStage},
          {.slot = kSharedActivated, .cols = shared, .product_input = true, .stage = kStage},
          {.slot = kSharedGateOut, .cols = moe.shared_gate ? 1 : 0, .stage = kStage}};
}

void RouteMoe(Decoder& d, ConstMatrixView x) {
  const LayerWeights& w = d.weights();
  const MoeConfig& moe = d.config().moe;
  const MatrixView logits = d.Buffer(kRouterLogits);  // [T, E]
  d.MatMul(x, w[kRouter], logits);
  if (moe.router_multiplier != 1) d.ops().ScaleAndCap(moe.router_multiplier, 0, logits);
  ExpertRouting routing = d.routing();
  routing.token_seq = d.index().token_seq;
  routing.seq_slot = d.index().seq_slot;
  routing.padding_slot = d.index().padding_slot;
  d.ops().RouteTokens(logits, w[kCorrectionBias].vector, w[kExpertScales].vector, moe.router,
                      routing);
}

absl::Status AddRoutedMoe(Decoder& d, ConstMatrixView x) {
  const LayerWeights& w = d.weights();
  const MoeConfig& moe = d.config().moe;
  const MatrixView gate_up = d.Buffer(kGateUpOut);    // [T k, 2f]
  const MatrixView activated = d.Buffer(kActivated);  // [T k, f]
  const Activation activation = d.config().activation;
  if (!moe.biases && !moe.weighs_inputs && !moe.clamped_swiglu) {
    d.ops().MatMulExpertsGated(activation, x, w[kGateUp].parts, d.routing(), gate_up, activated);
  } else {
    d.ops().MatMulExperts(x, w[kGateUp].parts, d.routing(), gate_up);
    if (moe.biases) d.ops().AddExpertBias(d.PerExpert(w[kGateUp].vector), d.routing(), gate_up);
    // An expert's first product is linear: scaling its output equals scaling its input.
    if (moe.weighs_inputs) d.ops().ScaleRows(d.routing().pair_weight, gate_up);
    moe.clamped_swiglu
        ? d.ops().ClampedSwiglu(moe.swiglu_alpha, moe.swiglu_limit, gate_up, activated)
        : d.ops().GatedActivation(activation, gate_up, activated);
  }
  if (!moe.weighs_inputs) d.ops().ScaleRows(d.routing().pair_weight, activated);
  const MatrixView shared = d.Buffer(kSharedActivated);  // [T, f']
  if (moe.shared_intermediate_size > 0) {
    d.MatMulGated(x, w[kSharedGateUp], d.Buffer(kSharedGateUpOut), shared);
  }
  if (moe.shared_gate) {
    const MatrixView gate = d.Buffer(kSharedGateOut);  // [T, 1]
    d.MatMul(x, w[kSharedOutputGate], gate);
    d.ops().Activate(Activation::kSigmoid, gate, gate);
    d.ops().ScaleRows(gate.F32(), shared);
  }
  return d.AddExpertsSum(activated, w[kDown], shared, w[kSharedDown]);
}

absl::Status AddMoe(Decoder& d, ConstMatrixView x) {
  RouteMoe(d, x);
  return AddRoutedMoe(d, x);
}

}  // namespace bulkhead::families
