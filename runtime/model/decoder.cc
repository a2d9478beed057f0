#include "runtime/model/decoder.h"

#include <cmath>
#include <utility>

#include "base/status.h"

namespace bulkhead {

Decoder::Decoder(DecoderParts parts, Backend& backend, Communicator& comm)
    : parts_(parts),
      config_(parts_.plan.config()),
      heads_(HeadLayoutOf(parts_.plan, parts_.rank)),
      scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)))),
      backend_(backend),
      comm_(comm) {}

absl::StatusOr<ConstMatrixView> Decoder::Forward(const StepIndex& index, const int32_t* token_ids) {
  const int64_t rows = index.num_tokens;
  MatrixView hidden = parts_.activations.hidden.Rows(0, rows);  // [T, D]
  backend_.Embed(token_ids, parts_.weights.embedding, parts_.plan.rank(parts_.rank).vocab.begin,
                 comm_.PartialSum(rows, config_.hidden_size));
  backend_.Fill(0.0F, hidden);
  BH_RETURN_IF_ERROR(Reduce(ConstMatrixView(), rows, parts_.weights.layers[0].input_norm));
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
    BH_RETURN_IF_ERROR(Attention(layer, index));
    BH_RETURN_IF_ERROR(Mlp(layer, rows));
  }
  return Output(rows);
}

absl::Status Decoder::Attention(int layer, const StepIndex& index) {
  const LayerWeights& w = parts_.weights.layers[layer];
  const int64_t rows = index.num_tokens;
  const MatrixView normed = parts_.activations.normed.Rows(0, rows);       // [T, D]
  const MatrixView qkv = parts_.activations.qkv.Rows(0, rows);             // [T, (h + 2k) d]
  const MatrixView attended = parts_.activations.attended.Rows(0, rows);   // [T, h d]
  const MatrixView partial = comm_.PartialSum(rows, config_.hidden_size);  // [T, D]
  if (heads_.num_heads == 0) {
    backend_.Fill(-0.0F, partial);  // a rank without heads adds nothing to the sum
    return Reduce(w.o_bias, rows, w.mlp_norm);
  }
  const KvLayerView kv = parts_.kv.Layer(layer);
  MatMulParts(normed, w.qkv, qkv);
  if (!w.qkv_bias.empty()) backend_.AddBias(w.qkv_bias, qkv);
  backend_.NormRope(index, heads_, w.q_norm, w.k_norm, config_.rms_norm_eps, parts_.rope, qkv);
  backend_.AppendKv(index, heads_, qkv, kv);
  const int window = config_.UsesWindow(layer) ? config_.sliding_window : 0;
  backend_.Attend(index, heads_, qkv, kv, scale_, window, attended);
  backend_.MatMul(attended, w.o, partial);
  return Reduce(w.o_bias, rows, w.mlp_norm);
}

absl::Status Decoder::Mlp(int layer, int64_t rows) {
  const LayerWeights& w = parts_.weights.layers[layer];
  const MatrixView normed = parts_.activations.normed.Rows(0, rows);       // [T, D]
  const MatrixView gate_up = parts_.activations.gate_up.Rows(0, rows);     // [T, 2f]
  const MatrixView gated = parts_.activations.gated.Rows(0, rows);         // [T, f]
  const MatrixView partial = comm_.PartialSum(rows, config_.hidden_size);  // [T, D]
  MatMulParts(normed, w.gate_up, gate_up);
  if (!w.gate_up_bias.empty()) backend_.AddBias(w.gate_up_bias, gate_up);
  backend_.SwiGlu(gate_up, gated);
  backend_.MatMul(gated, w.down, partial);
  const bool last = layer + 1 == config_.num_hidden_layers;
  return Reduce(w.down_bias, rows,
                last ? ConstMatrixView() : parts_.weights.layers[layer + 1].input_norm);
}

void Decoder::MatMulParts(ConstMatrixView x, const std::vector<Linear>& parts, MatrixView out) {
  int64_t column = 0;
  for (const Linear& part : parts) {
    backend_.MatMul(x, part, out.Cols(column, part.shape.rows));
    column += part.shape.rows;
  }
}

absl::Status Decoder::Reduce(ConstMatrixView bias, int64_t rows, ConstMatrixView norm) {
  const MatrixView hidden = parts_.activations.hidden.Rows(0, rows);  // [T, D]
  BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, comm_.AllReduceSum());
  if (norm.empty()) {
    backend_.AddResidual(sum, bias, hidden);
  } else {
    backend_.AddResidualNorm(sum, bias, hidden, norm, config_.rms_norm_eps,
                             parts_.activations.normed.Rows(0, rows));
  }
  return absl::OkStatus();
}

absl::Status Decoder::WarmUpProducts(MatrixView hidden, MatrixView part) {
  const Activations& act = parts_.activations;
  const auto warm_up = [&](ConstMatrixView x, const std::vector<Linear>& parts, MatrixView out) {
    int64_t column = 0;
    for (const Linear& part : parts) {
      BH_RETURN_IF_ERROR(backend_.WarmUpMatMul(x, part, out.Cols(column, part.shape.rows)));
      column += part.shape.rows;
    }
    return absl::OkStatus();
  };
  for (const LayerWeights& w : parts_.weights.layers) {
    // A partial sum is as wide as the hidden rows, and lies alike.
    if (heads_.num_heads > 0) {
      BH_RETURN_IF_ERROR(warm_up(act.normed, w.qkv, act.qkv));
      BH_RETURN_IF_ERROR(warm_up(act.attended, {w.o}, act.hidden));
    }
    BH_RETURN_IF_ERROR(warm_up(act.normed, w.gate_up, act.gate_up));
    BH_RETURN_IF_ERROR(warm_up(act.gated, {w.down}, act.hidden));
  }
  return warm_up(hidden, {parts_.weights.lm_head}, part);
}

void Decoder::Logits(MatrixView hidden, MatrixView part) {
  backend_.RmsNorm(hidden, parts_.weights.final_norm, config_.rms_norm_eps, hidden);
  backend_.MatMul(hidden, parts_.weights.lm_head, part);
}

}  // namespace bulkhead
