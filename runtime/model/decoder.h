// Decoder: the forward pass of a Llama-like decoder on one rank's shard. Three seams: the backend's
// ops, the communicator's sums, and the KV arena. Only the sums can fail.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "memory/kv_cache.h"
#include "runtime/model/footprint.h"
#include "runtime/model/weights.h"

namespace bulkhead {

// Everything the forward pass works on; views and references, owned by the runner.
struct DecoderParts {
  const ShardPlan& plan;
  int rank;
  const ModelWeights& weights;
  Activations activations;
  MatrixView rope;
  KvArena kv;
};

class Decoder {
 public:
  Decoder(DecoderParts parts, Backend& backend, Communicator& comm);

  // Runs T = index.num_tokens tokens (token ids in device memory) through the layers; returns the
  // last layer's output [T, D], not yet normed, valid until the next call.
  absl::StatusOr<ConstMatrixView> Forward(const StepIndex& index, const int32_t* token_ids);

  // Backend::WarmUpMatMul for every product, that of the logits with as many rows as `hidden` and
  // `part` have at the most. What activations hold is lost.
  absl::Status WarmUpProducts(MatrixView hidden, MatrixView part);

  // What Forward, or a recording of it, leaves of `rows` tokens.
  ConstMatrixView Output(int64_t rows) const { return parts_.activations.hidden.Rows(0, rows); }

  // part = this rank's columns of the logits of `hidden` [R, D]; `hidden` is overwritten.
  void Logits(MatrixView hidden, MatrixView part);

  // The cache from the next Forward on.
  void SetKv(const KvArena& kv) { parts_.kv = kv; }

 private:
  // A layer's two halves: each finds its normed input, and leaves that of the next one.
  absl::Status Attention(int layer, const StepIndex& index);
  absl::Status Mlp(int layer, int64_t rows);
  void MatMulParts(ConstMatrixView x, const std::vector<Linear>& parts, MatrixView out);
  // hidden += sum over ranks of the term that was written + bias; then normed = its norm with
  // `norm`, where there is one.
  absl::Status Reduce(ConstMatrixView bias, int64_t rows, ConstMatrixView norm);

  DecoderParts parts_;
  const ModelConfig& config_;
  HeadLayout heads_;
  float scale_;
  Backend& backend_;
  Communicator& comm_;
};

}  // namespace bulkhead
