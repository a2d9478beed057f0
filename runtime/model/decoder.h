// Decoder: the forward pass of a decoder on one rank's shard. Three interfaces: the backend's ops,
// the communicator's sums, and the KV arena. Only the sums can fail. What happens in a layer is in
// its family's file, written with the functions "for families": the residual stream alone goes from
// layer to layer.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "memory/kv_cache.h"
#include "memory/recurrent_state.h"
#include "runtime/engine/step_runner.h"
#include "runtime/model/family.h"
#include "runtime/model/footprint.h"
#include "runtime/model/weights.h"

namespace bulkhead {

// Everything the forward pass works on; views and references, owned by the runner.
struct DecoderParts {
  const ShardPlan& plan;
  int rank;
  const ModelWeights& weights;
  Activations activations;
  PositionTables positions;
  KvArena kv;
  StateArena state;
  std::vector<LayerPlace> layer_places;  // of this rank's layers
  int64_t table_rows;                    // of a group's block tables
};

// Tokens [begin, end) of a step whose sequences have the adapter, from 1 on.
struct AdapterRun {
  int adapter = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

class Decoder {
 public:
  Decoder(const DecoderParts& parts, Backend& backend, Communicator& comm);

  // Runs T = index.num_tokens tokens (token ids in device memory; `given` as in Step) through this
  // stage's layers; a stage after the first takes Hidden(T) instead of the ids. Returns the last
  // layer's output [T, D], not yet normed, valid until the next call. `adapters`: ascending, apart.
  absl::StatusOr<ConstMatrixView> Forward(const StepIndex& index, const int32_t* token_ids,
                                          absl::Span<const GivenRows> given = {},
                                          absl::Span<const AdapterRun> adapters = {});

  // Backend::WarmUpMatMul for every product, that of the logits with as many rows as `hidden` and
  // `part` have at the most: the layers are run on no token, when ops do nothing. What activations
  // hold is lost. Not collective.
  absl::Status WarmUpProducts(MatrixView hidden, MatrixView part);

  // The residual stream of `rows` tokens: what Forward, or a recording of it, reads and leaves.
  MatrixView Hidden(int64_t rows) const { return parts_.activations.hidden.Rows(0, rows); }

  // out = rows of what the last Forward left, as Hidden or as their final norm [R, D].
  void SelectHidden(const int32_t* rows, bool normed, MatrixView out);
  // Of an MTP layer: where its next Forward reads the hidden states before its tokens, and leaves
  // their norms.
  MatrixView MtpHidden(int64_t rows) const {
    return parts_.activations.mtp_input.Rows(0, rows).Cols(config_.hidden_size,
                                                           config_.hidden_size);
  }

  // part = this rank's columns of the logits of `hidden` [R, D]; `hidden` becomes its final norm.
  void Logits(MatrixView hidden, MatrixView part);

  // The cache from the next Forward on.
  void SetKv(const KvArena& kv) { parts_.kv = kv; }

  // ---- for families: the layer that runs
  const ModelConfig& config() const { return config_; }
  const LayerWeights& weights() const { return parts_.weights.layers[layer_]; }
  const LayerWeights& model_weights() const { return parts_.weights.model; }
  int model_layer() const { return static_cast<int>(shard().layers.begin) + layer_; }
  const HeadLayout& heads() const {
    return config_.HasFullHeads(model_layer()) ? full_heads_ : heads_;
  }
  const StepIndex& index() const { return index_; }
  Rotary rotary() const;  // of the layer: without a table where it has no positions
  KvLayerView kv() const { return parts_.kv.Layer(parts_.layer_places[layer_]); }
  StateLayerView state() const {
    return parts_.state.Layer(parts_.layer_places[layer_].state_layer);
  }
  AttentionOptions attention() const;
  Backend& ops() { return backend_; }
  int64_t first_head() const { return shard().heads.begin; }  // of the model's
  // Weights of the layer whose keys and values this one reads.
  const LayerWeights& kv_weights() const {
    if (owns_kv()) return weights();
    return parts_.weights.layers[config_.kv_layer[model_layer()] - shard().layers.begin];
  }
  bool owns_kv() const { return config_.OwnsKv(model_layer()); }
  int64_t mlp_cols() const {  // of the layer, on this rank
    return shard().mlp.size() * config_.MlpFactor(model_layer());
  }
  bool uses_delta() const { return config_.UsesDelta(model_layer()); }
  bool uses_experts() const { return config_.UsesExperts(model_layer()); }
  const ExpertRouting& routing() const { return parts_.activations.routing; }
  // The sums over ranks of the squares of q's and of k's heads in qkv [T, (h + 2k) d], until the
  // next sum: [T, 2]. Collective.
  absl::StatusOr<ConstMatrixView> SumHeadSquares(ConstMatrixView qkv);
  ConstMatrixView PerExpert(ConstMatrixView vector) const;  // [E, n] of a vector of E n
  // [T, L P] of all layers, for Family::begin to fill; and [T, P] of the layer.
  MatrixView per_layer_inputs() const { return RowsOf(parts_.activations.per_layer_inputs); }
  ConstMatrixView per_layer_input() const {
    const int64_t cols = config_.per_layer_input_size;
    return per_layer_inputs().Cols(model_layer() * cols, cols);
  }
  // [T x rows_per_token, cols] of the family's BufferRow of this slot.
  MatrixView Buffer(int slot) const { return RowsOf(parts_.activations.buffers[slot]); }
  // The norm of the residual stream [T, D], for products to read until the next Norm; the stream
  // itself, until the next AddSum, where the layer has no such norm.
  ConstMatrixView Norm(const Weight& weight);
  // The residual stream [T, D] with all that was added to it.
  MatrixView Stream();
  // out [T, n] += factor times the tokens' rows of a table [V, n]. Collective; the sum before it is
  // gone from here on.
  absl::Status AddRows(const Weight& table, float factor, MatrixView out);
  // out = x * weight^T + bias: this rank's outputs.
  void MatMul(ConstMatrixView x, const Weight& weight, MatrixView out);
  // out = activation(gates) * ups, those of MatMul in `gate_up`, which is undefined from here on.
  void MatMulGated(ConstMatrixView x, const Weight& weight, MatrixView gate_up, MatrixView out);
  // The residual stream += the config's multiplier times the sum over ranks of x * weight^T, +
  // bias. Collective.
  absl::Status AddSum(ConstMatrixView x, const Weight& weight);
  // As AddSum, but adds the norm of the sum, if the layer has one: in `normed` [T, D], which must
  // stay until the next Norm.
  absl::Status AddNormedSum(ConstMatrixView x, const Weight& weight, const Weight& norm,
                            MatrixView normed);

  // The norm of what AddSum or AddExpertsSum was called for last, in `out` [T, D], instead of
  // adding that.
  void TakeNormedSum(const Weight& norm, MatrixView out);

  // The same of the sum of `experts` and of the shared one, if the layer has it (kernels/ops.inc:
  // SumExperts).
  absl::Status AddExpertsSum(ConstMatrixView x, const Weight& experts, ConstMatrixView shared_x,
                             const Weight& shared);

 private:
  MatrixView RowsOf(MatrixView buffer) const {
    const int64_t rows_per_token = buffer.rows() / parts_.activations.hidden.rows();
    return buffer.Rows(0, index_.num_tokens * rows_per_token);
  }
  // All rows of the buffer that `view` is the first rows of.
  template <typename View>
  View WholeOf(View view) const {
    return {view.data(), view.dtype(), parts_.activations.hidden.rows(), view.cols(),
            view.row_stride()};
  }
  const RankShard& shard() const { return parts_.plan.rank(parts_.rank); }
  // The residual stream of the tokens before the first layer.
  absl::Status Embed(const int32_t* token_ids, absl::Span<const GivenRows> given);
  // Instead of embeddings, an MTP layer's stream is a product of their norms and MtpHidden's.
  void ProjectMtpInput();
  absl::Status RunLayers();
  void Multiply(ConstMatrixView x, const std::vector<Linear>& parts, MatrixView out);
  // Calls visit(product, first, rows) for each run of tokens of the product's adapter.
  template <typename Visit>
  void ForLowRank(const Weight& weight, const Visit& visit) const;
  // Whether there is one.
  bool IsAdapted(const Weight& weight) const;
  // out += factor times what the product's B's make of `inner`, from the token `first` on.
  void AddOuters(const LowRank& product, ConstMatrixView inner, int64_t first, float factor,
                 MatrixView out);
  // The sums over ranks of A x, of the tokens from the first run's begin on, until the next sum.
  // Collective.
  absl::StatusOr<ConstMatrixView> SumInner(ConstMatrixView x, const Weight& weight);
  // out += factor times what all B's make of those.
  void AddOuterSums(const Weight& weight, ConstMatrixView inner, float factor, MatrixView out);
  // The residual stream += factor times what the adapters add to the sum of x * weight^T.
  // Collective.
  absl::Status AddLowRankSum(ConstMatrixView x, const Weight& weight, float factor);
  // AddSum without those.
  absl::Status AddOwnSum(ConstMatrixView x, const Weight& weight);
  void NormInto(ConstMatrixView x, const Weight& weight, MatrixView out);
  // Sums what the ranks have written to PartialSum, unless a norm may; factor * (sum + bias) is
  // pending.
  absl::Status SumPartials(ConstMatrixView bias, float factor);
  // The sum that a norm may have made, for anything else.
  ConstMatrixView PendingSum();
  void AddPending();

  DecoderParts parts_;
  const ModelConfig& config_;
  const Family& family_;
  const HeadLayout heads_;
  const HeadLayout full_heads_;
  Backend& backend_;
  Communicator& comm_;
  StepIndex index_;
  absl::Span<const AdapterRun> adapters_;  // of the step
  const int32_t* token_ids_ = nullptr;     // of the step, on the first stage
  int layer_ = 0;                          // of this rank's layers
  // To be added to the residual stream: the norm that follows does both in one pass.
  bool pending_ = false;
  bool pending_is_partial_ = false;  // not summed yet
  ConstMatrixView pending_sum_;
  ConstMatrixView pending_bias_;
  float pending_factor_ = 1;
  bool warming_up_ = false;
  absl::Status warm_up_status_;
};

}  // namespace bulkhead
