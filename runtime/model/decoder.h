// Decoder: the forward pass of a decoder on one rank's shard. Three interfaces: the backend's ops,
// the communicator's sums, and the KV arena. Only the sums can fail. A layer's computation is in
// its family's file, written with the functions "for families"; only the residual stream is passed
// from layer to layer.
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
  int64_t table_rows;                    // per KV group, of block_tables
};

// Tokens [begin, end) of a step whose sequences use adapter `adapter` (1-based).
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
  // layer's output [T, D], before the final norm, valid until the next call. `adapters`: ascending,
  // disjoint.
  absl::StatusOr<ConstMatrixView> Forward(const StepIndex& index, const int32_t* token_ids,
                                          absl::Span<const GivenRows> given = {},
                                          absl::Span<const AdapterRun> adapters = {});

  // Calls Backend::WarmUpMatMul for every product, for the logits with up to as many rows as
  // `hidden` and `part` have: runs the layers on zero tokens, for which ops do nothing. Overwrites
  // activations. Not collective.
  absl::Status WarmUpProducts(MatrixView hidden, MatrixView part);

  // The residual stream of `rows` tokens: input and output of Forward or a recording of it.
  MatrixView Hidden(int64_t rows) const { return parts_.activations.hidden.Rows(0, rows); }

  // out [R, D] = these rows of the last Forward's output, as in Hidden or after the final norm.
  void SelectHidden(const int32_t* rows, bool normed, MatrixView out);
  // For an MTP layer: where its next Forward reads the hidden states preceding its tokens and
  // writes their norms.
  MatrixView MtpHidden(int64_t rows) const {
    return parts_.activations.mtp_input.Rows(0, rows).Cols(config_.hidden_size,
                                                           config_.hidden_size);
  }

  // part = this rank's columns of the logits of `hidden` [R, D]; `hidden` becomes its final norm.
  void Logits(MatrixView hidden, MatrixView part);

  // Sets the cache to use from the next Forward on.
  void SetKv(const KvArena& kv) { parts_.kv = kv; }

  // ---- for families: the running layer
  const ModelConfig& config() const { return config_; }
  const LayerWeights& weights() const { return parts_.weights.layers[layer_]; }
  const LayerWeights& model_weights() const { return parts_.weights.model; }
  int model_layer() const { return static_cast<int>(shard().layers.begin) + layer_; }
  const HeadLayout& heads() const {
    return config_.HasFullHeads(model_layer()) ? full_heads_ : heads_;
  }
  const StepIndex& index() const { return index_; }
  Rotary rotary() const;  // the layer's; without a table if it has no RoPE
  KvLayerView kv() const { return parts_.kv.Layer(parts_.layer_places[layer_]); }
  StateLayerView state() const {
    return parts_.state.Layer(parts_.layer_places[layer_].state_layer);
  }
  AttentionOptions attention() const;
  Backend& ops() { return backend_; }
  int64_t first_head() const { return shard().heads.begin; }  // index among the model's heads
  // Weights of the layer whose keys and values this one reads.
  const LayerWeights& kv_weights() const {
    if (owns_kv()) return weights();
    return parts_.weights.layers[config_.kv_layer[model_layer()] - shard().layers.begin];
  }
  bool owns_kv() const { return config_.OwnsKv(model_layer()); }
  int64_t mlp_cols() const {  // the layer's, on this rank
    return shard().mlp.size() * config_.MlpFactor(model_layer());
  }
  bool uses_delta() const { return config_.UsesDelta(model_layer()); }
  bool uses_experts() const { return config_.UsesExperts(model_layer()); }
  const ExpertRouting& routing() const { return parts_.activations.routing; }
  // The sums over ranks of the squares of q's and of k's heads in qkv [T, (h + 2k) d], until the
  // next sum: [T, 2]. Collective.
  absl::StatusOr<ConstMatrixView> SumHeadSquares(ConstMatrixView qkv);
  ConstMatrixView PerExpert(ConstMatrixView vector) const;  // a vector of E n as [E, n]
  // [T, L P] for all layers, filled by Family::begin; and [T, P] for the running layer.
  MatrixView per_layer_inputs() const { return RowsOf(parts_.activations.per_layer_inputs); }
  ConstMatrixView per_layer_input() const {
    const int64_t cols = config_.per_layer_input_size;
    return per_layer_inputs().Cols(model_layer() * cols, cols);
  }
  // [T x rows_per_token, cols]: the buffer of the family's BufferRow with this slot.
  MatrixView Buffer(int slot) const { return RowsOf(parts_.activations.buffers[slot]); }
  // The norm of the residual stream [T, D], for products to read until the next Norm; if the layer
  // has no such norm, the stream itself, until the next AddSum.
  ConstMatrixView Norm(const Weight& weight);
  // The residual stream [T, D] with all that was added to it.
  MatrixView Stream();
  // out [T, n] += factor times the tokens' rows of a table [V, n]. Collective; overwrites the
  // previous sum.
  absl::Status AddRows(const Weight& table, float factor, MatrixView out);
  // out = x * weight^T + bias: this rank's outputs.
  void MatMul(ConstMatrixView x, const Weight& weight, MatrixView out);
  // out = activation(gates) * ups, with gates and ups from MatMul in `gate_up`, which is undefined
  // afterwards.
  void MatMulGated(ConstMatrixView x, const Weight& weight, MatrixView gate_up, MatrixView out);
  // The residual stream += the config's multiplier times the sum over ranks of x * weight^T, +
  // bias. Collective.
  absl::Status AddSum(ConstMatrixView x, const Weight& weight);
  // As AddSum, but adds the norm of the sum if the layer has one: stored in `normed` [T, D], which
  // must be kept until the next Norm.
  absl::Status AddNormedSum(ConstMatrixView x, const Weight& weight, const Weight& norm,
                            MatrixView normed);

  // Writes the norm of the last AddSum's or AddExpertsSum's sum to `out` [T, D] instead of adding
  // the sum.
  void TakeNormedSum(const Weight& norm, MatrixView out);

  // AddSum of the experts and of the shared expert, if the layer has one (kernels/ops.inc:
  // SumExperts).
  absl::Status AddExpertsSum(ConstMatrixView x, const Weight& experts, ConstMatrixView shared_x,
                             const Weight& shared);

 private:
  MatrixView RowsOf(MatrixView buffer) const {
    const int64_t rows_per_token = buffer.rows() / parts_.activations.hidden.rows();
    return buffer.Rows(0, index_.num_tokens * rows_per_token);
  }
  // All rows of the buffer whose first rows are `view`.
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
  // Whether there is such a run.
  bool IsAdapted(const Weight& weight) const;
  // out += factor times the product's B's applied to `inner`, from token `first` on.
  void AddOuters(const LowRank& product, ConstMatrixView inner, int64_t first, float factor,
                 MatrixView out);
  // The sums over ranks of A x for the tokens from the first run's begin on, valid until the next
  // sum. Collective.
  absl::StatusOr<ConstMatrixView> SumInner(ConstMatrixView x, const Weight& weight);
  // out += factor times all B's applied to these sums.
  void AddOuterSums(const Weight& weight, ConstMatrixView inner, float factor, MatrixView out);
  // The residual stream += factor times the adapters' part of the sum of x * weight^T. Collective.
  absl::Status AddLowRankSum(ConstMatrixView x, const Weight& weight, float factor);
  // AddSum without the adapters.
  absl::Status AddOwnSum(ConstMatrixView x, const Weight& weight);
  void NormInto(ConstMatrixView x, const Weight& weight, MatrixView out);
  // Sums what the ranks wrote to PartialSum, unless the next norm can; factor * (sum + bias)
  // becomes pending.
  absl::Status SumPartials(ConstMatrixView bias, float factor);
  // Completes the sum that was left to a norm, for other uses.
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
  absl::Span<const AdapterRun> adapters_;  // the step's
  const int32_t* token_ids_ = nullptr;     // the step's, on the first stage
  int layer_ = 0;                          // index among this rank's layers
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
