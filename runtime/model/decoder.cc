#include "runtime/model/decoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace bulkhead {
namespace {

// A matrix of [rows, cols] in the buffer's memory.
MatrixView FirstOf(MatrixView buffer, int64_t rows, int64_t cols) {
  BH_CHECK(rows * cols <= buffer.rows() * buffer.cols());
  return MatrixView(buffer.data(), DType::kF32, rows, cols);
}

}  // namespace

Decoder::Decoder(const DecoderParts& parts, Backend& backend, Communicator& comm)
    : parts_(parts),
      config_(parts_.plan.config()),
      family_(FamilyOf(config_)),
      heads_(HeadLayoutOf(parts_.plan, parts_.rank)),
      full_heads_(HeadLayoutOf(parts_.plan, parts_.rank, true)),
      backend_(backend),
      comm_(comm) {}

absl::StatusOr<ConstMatrixView> Decoder::Forward(const StepIndex& index, const int32_t* token_ids,
                                                 absl::Span<const GivenRows> given,
                                                 absl::Span<const AdapterRun> adapters) {
  index_ = index;
  adapters_ = adapters;
  token_ids_ = token_ids;
  // A row in place of a token has no row in another table.
  BH_CHECK(given.empty() || config_.per_layer_input_size == 0);
  // Inputs of the layers do not go from stage to stage.
  BH_CHECK(shard().first_stage() || config_.per_layer_input_size == 0);
  if (shard().first_stage()) BH_RETURN_IF_ERROR(Embed(token_ids, given));
  BH_RETURN_IF_ERROR(RunLayers());
  AddPending();
  adapters_ = {};
  return Hidden(index_.num_tokens);
}

absl::Status Decoder::Embed(const int32_t* token_ids, absl::Span<const GivenRows> given) {
  const MatrixView hidden = Hidden(index_.num_tokens);
  const MatrixView partial = comm_.PartialSum(hidden.rows(), hidden.cols());
  backend_.Embed(token_ids, parts_.weights.model[kEmbedding].parts[0], shard().vocab.begin,
                 partial);
  for (const GivenRows& rows : given) {
    backend_.device().CopyFromHost(
        rows.rows.data(), partial.RowBytes(rows.first_token),
        rows.rows.rows() * rows.rows.cols() * static_cast<int64_t>(sizeof(float)));
  }
  backend_.Fill(0.0F, hidden);
  return SumPartials(ConstMatrixView(), config_.embedding_multiplier);
}

void Decoder::ProjectMtpInput() {
  const LayerWeights& weights = parts_.weights.model;
  const int64_t tokens = index_.num_tokens;
  const MatrixView input = parts_.activations.mtp_input.Rows(0, tokens);  // [T, 2D]
  NormInto(MtpHidden(tokens), weights[kMtpHiddenNorm], MtpHidden(tokens));
  NormInto(Stream(), weights[kMtpEmbeddingNorm], input.Cols(0, config_.hidden_size));
  Multiply(input, weights[kMtpProjection].parts, Stream());
}

void Decoder::SelectHidden(const int32_t* rows, bool normed, MatrixView out) {
  backend_.SelectRows(parts_.activations.hidden, rows, out);
  if (normed) NormInto(out, parts_.weights.model[kFinalNorm], out);
}

absl::Status Decoder::RunLayers() {
  const auto num_layers = static_cast<int>(parts_.weights.layers.size());
  const int32_t* const tables = index_.block_tables;
  if (config_.mtp_layer > 0) ProjectMtpInput();
  if (family_.begin != nullptr) BH_RETURN_IF_ERROR(family_.begin(*this));
  for (layer_ = 0; layer_ < num_layers; ++layer_) {
    const int group = parts_.layer_places[layer_].group;
    if (group > 0) {
      index_.block_tables = tables + group * parts_.table_rows * index_.block_table_stride;
    }
    BH_RETURN_IF_ERROR(family_.forward(*this));
    index_.block_tables = tables;
  }
  return absl::OkStatus();
}

AttentionOptions Decoder::attention() const {
  return {.scale = config_.attention_scale,
          .window = config_.WindowOf(model_layer()),
          .soft_cap = config_.attention_soft_cap,
          .chunk = config_.ChunkOf(model_layer())};
}

Rotary Decoder::rotary() const {
  const PositionTables& tables = parts_.positions;
  Rotary rotary;
  rotary.interleaved = config_.rope_interleaved;
  const bool uses_rope = config_.UsesRope(model_layer());
  if (!uses_rope || !config_.q_scale_without_rope) rotary.q_scale = tables.q_scale;
  if (!uses_rope) return rotary;
  const bool is_windowed = config_.WindowOf(model_layer()) > 0;
  const bool has_own = is_windowed && !tables.window_rope.empty();
  rotary.table = has_own ? tables.window_rope : tables.rope;
  rotary.of_halves = !has_own && config_.rope.scaling == RopeScaling::kProportional;
  return rotary;
}

void Decoder::NormInto(ConstMatrixView x, const Weight& weight, MatrixView out) {
  const ConstMatrixView all = weight.vector;  // a bias lies behind the weight
  if (config_.layer_norm) {
    const int64_t cols = x.cols();
    const ConstMatrixView bias =
        all.cols() > cols ? all.Cols(cols, all.cols() - cols) : ConstMatrixView();
    backend_.LayerNorm(x, all.Cols(0, cols), bias, config_.rms_norm_eps, out);
  } else {
    backend_.RmsNorm(x, all, config_.rms_norm_eps, out);
  }
}

ConstMatrixView Decoder::Norm(const Weight& weight) {
  const MatrixView hidden = RowsOf(parts_.activations.hidden);
  const MatrixView normed = RowsOf(parts_.activations.normed);
  if (weight.vector.empty()) {
    AddPending();
    return hidden;
  }
  if (pending_ && !config_.layer_norm) {
    if (pending_is_partial_) {
      comm_.AllReduceSumNorm(
          {pending_bias_, pending_factor_, hidden, weight.vector, config_.rms_norm_eps, normed});
    } else {
      backend_.AddResidualNorm(pending_sum_, pending_bias_, pending_factor_, hidden, weight.vector,
                               config_.rms_norm_eps, normed);
    }
    pending_ = pending_is_partial_ = false;
    return normed;
  }
  AddPending();
  NormInto(hidden, weight, normed);
  return normed;
}

MatrixView Decoder::Stream() {
  AddPending();
  return RowsOf(parts_.activations.hidden);
}

absl::Status Decoder::AddRows(const Weight& table, float factor, MatrixView out) {
  AddPending();
  if (warming_up_) return absl::OkStatus();
  // Some tokens at a time: sums over ranks are sized for the residual stream.
  const int64_t rows_at_once =
      MaxSumElements(config_, parts_.activations.hidden.rows()) / out.cols();
  for (int64_t begin = 0; begin < out.rows(); begin += rows_at_once) {
    const MatrixView rows = out.Rows(begin, std::min(rows_at_once, out.rows() - begin));
    backend_.Embed(token_ids_ + begin, table.parts[0], shard().vocab.begin,
                   comm_.PartialSum(rows.rows(), rows.cols()));
    BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, comm_.AllReduceSum());
    backend_.AddResidual(sum, ConstMatrixView(), factor, rows);
  }
  return absl::OkStatus();
}

void Decoder::MatMul(ConstMatrixView x, const Weight& weight, MatrixView out) {
  Multiply(x, weight.parts, out);
  if (!weight.vector.empty()) backend_.AddBias(weight.vector, out);
  ForLowRank(weight, [&](const LowRank& product, int64_t first, int64_t rows) {
    const MatrixView inner = FirstOf(parts_.activations.low_rank, rows, product.a.shape.rows);
    backend_.MatMul(x.Rows(first, rows), product.a, inner);
    AddOuters(product, inner, first, 1, out);
  });
}

template <typename Visit>
void Decoder::ForLowRank(const Weight& weight, const Visit& visit) const {
  for (const LowRank& product : weight.low_rank) {
    for (const AdapterRun& run : adapters_) {
      if (run.adapter == product.adapter) visit(product, run.begin, run.end - run.begin);
    }
  }
}

bool Decoder::IsAdapted(const Weight& weight) const {
  bool is_adapted = false;
  ForLowRank(weight, [&](const LowRank&, int64_t, int64_t) { is_adapted = true; });
  return is_adapted;
}

void Decoder::AddOuters(const LowRank& product, ConstMatrixView inner, int64_t first, float factor,
                        MatrixView out) {
  for (int64_t begin = 0; begin < inner.rows(); begin += kLowRankRows) {
    const int64_t rows = std::min(kLowRankRows, inner.rows() - begin);
    for (const LowRank::Outer& outer : product.outer) {
      const int64_t cols = outer.b.shape.rows;
      const MatrixView sum = FirstOf(parts_.activations.low_rank_out, rows, cols);
      backend_.MatMul(inner.Rows(begin, rows).Cols(outer.first_inner, outer.rank), outer.b, sum);
      backend_.AddResidual(sum, ConstMatrixView(), factor * outer.scale,
                           out.Rows(first + begin, rows).Cols(outer.first_output, cols));
    }
  }
}

absl::StatusOr<ConstMatrixView> Decoder::SumInner(ConstMatrixView x, const Weight& weight) {
  int64_t most = 0;
  ForLowRank(weight, [&](const LowRank& product, int64_t, int64_t) {
    most = std::max(most, product.a.shape.rows);
  });
  const int64_t begin = adapters_.front().begin;
  const MatrixView partial = comm_.PartialSum(adapters_.back().end - begin, most);
  backend_.Fill(-0.0F, partial);  // what a rank without heads adds to the sum
  if (x.cols() > 0) {
    ForLowRank(weight, [&](const LowRank& product, int64_t first, int64_t rows) {
      backend_.MatMul(x.Rows(first, rows), product.a,
                      partial.Rows(first - begin, rows).Cols(0, product.a.shape.rows));
    });
  }
  return comm_.AllReduceSumF32();
}

void Decoder::AddOuterSums(const Weight& weight, ConstMatrixView inner, float factor,
                           MatrixView out) {
  ForLowRank(weight, [&](const LowRank& product, int64_t first, int64_t rows) {
    const ConstMatrixView of_rows = inner.Rows(first - adapters_.front().begin, rows);
    AddOuters(product, of_rows.Cols(0, product.a.shape.rows), first, factor, out);
  });
}

absl::Status Decoder::AddLowRankSum(ConstMatrixView x, const Weight& weight, float factor) {
  if (!IsAdapted(weight)) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(const ConstMatrixView inner, SumInner(x, weight));
  AddOuterSums(weight, inner, factor, RowsOf(parts_.activations.hidden));
  return absl::OkStatus();
}

void Decoder::MatMulGated(ConstMatrixView x, const Weight& weight, MatrixView gate_up,
                          MatrixView out) {
  if (weight.parts.size() == 1 && weight.vector.empty()) {
    const Linear& part = weight.parts[0];
    // Not with adapters: a row's bits must not depend on whether other rows of its step have one.
    if (warming_up_ && weight.low_rank.empty()) {
      return warm_up_status_.Update(backend_.WarmUpMatMulGated(WholeOf(x), part, WholeOf(gate_up)));
    }
    if (!warming_up_ && !IsAdapted(weight)) {
      return backend_.MatMulGated(config_.activation, x, part, gate_up, out);
    }
  }
  MatMul(x, weight, gate_up);
  backend_.GatedActivation(config_.activation, gate_up, out);
}

absl::StatusOr<ConstMatrixView> Decoder::SumHeadSquares(ConstMatrixView qkv) {
  AddPending();  // the sum before it is gone from here on
  if (warming_up_) return ConstMatrixView();
  backend_.SumHeadSquares(heads_, {shard().head_borders, shard().kv_head_borders}, qkv,
                          comm_.PartialSum(index_.num_tokens, 2));
  return comm_.AllReduceSumF32();
}

absl::Status Decoder::AddSum(ConstMatrixView x, const Weight& weight) {
  AddPending();  // the sum before it is gone from here on
  BH_RETURN_IF_ERROR(AddLowRankSum(x, weight, config_.residual_multiplier));
  return AddOwnSum(x, weight);
}

absl::Status Decoder::AddOwnSum(ConstMatrixView x, const Weight& weight) {
  const MatrixView hidden = RowsOf(parts_.activations.hidden);
  if (warming_up_) {
    Multiply(x, weight.parts, hidden);  // a partial sum is as wide, and lies alike
    return absl::OkStatus();
  }
  const MatrixView partial = comm_.PartialSum(hidden.rows(), hidden.cols());
  if (x.cols() > 0) {
    Multiply(x, weight.parts, partial);
  } else {
    backend_.Fill(-0.0F, partial);  // a rank without heads adds nothing to the sum
  }
  return SumPartials(weight.vector, config_.residual_multiplier);
}

absl::Status Decoder::AddExpertsSum(ConstMatrixView x, const Weight& experts,
                                    ConstMatrixView shared_x, const Weight& shared) {
  const MatrixView hidden = RowsOf(parts_.activations.hidden);
  if (warming_up_) {
    Multiply(shared_x, shared.parts, hidden);  // as in AddSum
    return absl::OkStatus();
  }
  AddPending();
  BH_RETURN_IF_ERROR(AddLowRankSum(shared_x, shared, config_.residual_multiplier));
  backend_.SumExperts(x, experts.parts, routing(), shared_x,
                      shared.parts.empty() ? nullptr : &shared.parts[0],
                      comm_.PartialSum(hidden.rows(), hidden.cols()));
  BH_RETURN_IF_ERROR(SumPartials(ConstMatrixView(), config_.residual_multiplier));
  if (experts.vector.empty()) return absl::OkStatus();
  AddPending();
  backend_.AddWeightedBiases(PerExpert(experts.vector), routing(), hidden);
  return absl::OkStatus();
}

ConstMatrixView Decoder::PerExpert(ConstMatrixView vector) const {
  const int64_t num_experts = config_.moe.num_experts;
  return ConstMatrixView(vector.data(), vector.dtype(), num_experts, vector.cols() / num_experts);
}

absl::Status Decoder::AddNormedSum(ConstMatrixView x, const Weight& weight, const Weight& norm,
                                   MatrixView normed) {
  if (norm.vector.empty() || warming_up_) return AddSum(x, weight);
  AddPending();
  // `normed` lies where `x` does: it is written when the products are done.
  MatrixView inner;
  if (IsAdapted(weight)) {
    BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, SumInner(x, weight));
    inner = FirstOf(parts_.activations.low_rank, sum.rows(), sum.cols());
    backend_.Fill(0.0F, inner);
    backend_.AddResidual(sum, ConstMatrixView(), 1, inner);
  }
  BH_RETURN_IF_ERROR(AddOwnSum(x, weight));
  ConstMatrixView sum = PendingSum();
  if (IsAdapted(weight) || !pending_bias_.empty()) {
    backend_.Fill(0.0F, normed);
    backend_.AddResidual(sum, pending_bias_, 1, normed);
    if (IsAdapted(weight)) AddOuterSums(weight, inner, 1, normed);
    sum = normed;
  }
  NormInto(sum, norm, normed);
  pending_sum_ = normed;
  pending_bias_ = ConstMatrixView();
  return absl::OkStatus();
}

void Decoder::TakeNormedSum(const Weight& norm, MatrixView out) {
  if (!pending_) return;  // warming up
  BH_CHECK(pending_bias_.empty() && pending_factor_ == 1);
  NormInto(PendingSum(), norm, out);
  pending_ = false;
}

void Decoder::Multiply(ConstMatrixView x, const std::vector<Linear>& parts, MatrixView out) {
  int64_t column = 0;
  for (const Linear& part : parts) {
    const MatrixView columns = out.Cols(column, part.shape.rows);
    column += part.shape.rows;
    if (warming_up_) {
      warm_up_status_.Update(backend_.WarmUpMatMul(WholeOf(x), part, WholeOf(columns)));
    } else {
      backend_.MatMul(x, part, columns);
    }
  }
}

absl::Status Decoder::SumPartials(ConstMatrixView bias, float factor) {
  const MatrixView hidden = RowsOf(parts_.activations.hidden);
  pending_is_partial_ = !config_.layer_norm && comm_.NormsSum(hidden.rows(), hidden.cols());
  if (!pending_is_partial_) {
    BH_ASSIGN_OR_RETURN(pending_sum_, comm_.AllReduceSum());
  }
  pending_bias_ = bias;
  pending_factor_ = factor;
  pending_ = true;
  return absl::OkStatus();
}

ConstMatrixView Decoder::PendingSum() {
  if (std::exchange(pending_is_partial_, false)) {
    const absl::StatusOr<ConstMatrixView> sum = comm_.AllReduceSum();
    BH_CHECK(sum.ok());  // as comm_ has said
    pending_sum_ = *sum;
  }
  return pending_sum_;
}

void Decoder::AddPending() {
  if (pending_) {
    backend_.AddResidual(PendingSum(), pending_bias_, pending_factor_,
                         RowsOf(parts_.activations.hidden));
  }
  pending_ = false;
}

absl::Status Decoder::WarmUpProducts(MatrixView hidden, MatrixView part) {
  index_ = StepIndex();
  adapters_ = {};
  warming_up_ = true;
  warm_up_status_.Update(RunLayers());
  warming_up_ = false;
  if (!warm_up_status_.ok() || !shard().last_stage()) return warm_up_status_;
  return backend_.WarmUpMatMul(hidden, parts_.weights.model[kLmHead].parts[0], part);
}

void Decoder::Logits(MatrixView hidden, MatrixView part) {
  NormInto(hidden, parts_.weights.model[kFinalNorm], hidden);
  backend_.MatMul(hidden, parts_.weights.model[kLmHead].parts[0], part);
  if (config_.logit_multiplier != 1 || config_.logit_soft_cap != 0) {
    backend_.ScaleAndCap(config_.logit_multiplier, config_.logit_soft_cap, part);
  }
}

}  // namespace bulkhead
