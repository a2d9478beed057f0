// One rank's weights: their layout in the weights arena, and where the loader puts each part; both
// follow from the rows of the family's table. Layout without memory is the plan; with memory it is
// the run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "memory/ledger.h"
#include "memory/linear.h"
#include "shard/shard_plan.h"
#include "shard/tensor_row.h"
#include "shard/weight_formats.h"
#include "shard/weight_loader.h"

namespace bulkhead {

// An adapter's addition to some outputs of a weight: scale * B (A x).
struct LowRank {
  struct Outer {
    int64_t first_output = 0;  // among the weight's outputs
    int64_t first_inner = 0;   // among `a`'s outputs
    int64_t rank = 0;
    float scale = 1;
    Linear b;  // [outputs, rank]
  };
  int adapter = 0;  // 1-based
  Linear a;         // all parts' A: [sum of ranks, inputs]
  std::vector<Outer> outer;
};

// The weights of one slot: a matrix, a vector, or a matrix and its bias.
struct Weight {
  // The rows' outputs concatenated in one matrix; separate if each row has its own index, with one
  // matrix per expert or head (without outputs if it is another rank's).
  std::vector<Linear> parts;
  ConstMatrixView vector;  // [1, n] f32; no columns if there is none
  std::vector<LowRank> low_rank;
};

// Weights by slot of the family's file; a slot without rows is an empty Weight.
class LayerWeights {
 public:
  const Weight& operator[](int slot) const {
    static const Weight none;
    return slot < static_cast<int>(slots_.size()) ? slots_[slot] : none;
  }
  Weight& At(int slot) {
    if (slot >= static_cast<int>(slots_.size())) slots_.resize(slot + 1);
    return slots_[slot];
  }
  std::vector<Weight>& slots() { return slots_; }

 private:
  std::vector<Weight> slots_;
};

struct ModelWeights {
  LayerWeights model;  // by ModelSlot; lm_head is the embedding itself when tied
  std::vector<LayerWeights> layers;
  std::vector<std::vector<LayerWeights>> adapters;  // [adapter][layer], slots of AdapterTensors
};

ModelWeights LayOutWeights(const RankShard& shard, const WeightFormats& held_as,
                           const BackendSizes& sizes, BumpAllocator& allocator);

// The rows of a model's layers, once for all layers whose rows only differ in their names: finding
// them for hundreds of experts and heads in dozens of layers is the slowest part.
class LayerKinds {
 public:
  explicit LayerKinds(const ModelConfig& config);

  int size() const { return static_cast<int>(kinds_.size()); }
  const std::vector<TensorRow>& Rows(int kind) const { return kinds_[kind]; }
  // The number of `layers` of this kind.
  int64_t CountIn(Range layers, int kind) const;

 private:
  std::vector<std::vector<TensorRow>> kinds_;
  std::vector<int> kind_of_layer_;  // [L]
};

// Needs that only depend on a rank's tensors, not on limits.
struct WeightNeeds {
  int64_t arena_bytes = 0;   // used by LayOutWeights
  int64_t stored_bytes = 0;  // StoredWeightBytes
  int64_t max_inputs = 0;    // maximum inputs (K) of a product
  // Host memory for weights that are assembled there while they are loaded: the largest, and all.
  int64_t largest_host_bytes = 0;
  int64_t all_host_bytes = 0;

  // Host bytes of incomplete weights when `num_threads` read (Checkpoint::MostOpenBytes).
  int64_t OpenBytes(int num_threads) const {
    return std::min(all_host_bytes, Checkpoint::MostOpenBytes(largest_host_bytes, num_threads));
  }
};
WeightNeeds WeightNeedsOf(const RankShard& shard, const WeightFormats& held_as,
                          const BackendSizes& sizes, const LayerKinds& layers);
WeightNeeds WeightNeedsOf(const RankShard& shard, const WeightFormats& held_as,
                          const BackendSizes& sizes);
// The sum of StoredBytes (shard/tensor_row.h) of the rank's slices.
int64_t StoredWeightBytes(const RankShard& shard, const WeightFormats& held_as);
// Bytes of one adapter in the weights arena.
int64_t AdapterBytes(const RankShard& shard, const WeightFormats& held_as,
                     const BackendSizes& sizes, const AdapterConfig& adapter);
// Weight bytes that a step reads, per entry of `batches` (numbers of tokens): of experts only the
// distinct ones that the tokens are expected to use if chosen at random, and the embedding only if
// it is also the head.
std::vector<double> ReadWeightBytes(const RankShard& shard, const WeightFormats& held_as,
                                    absl::Span<const int> batches);
int64_t MaxInputsOf(const std::vector<TensorRow>& rows, const RankShard& shard);

// Reads this rank's part of the checkpoint and of the config's adapters into weights that were laid
// out with memory. Not collective. `total_bytes` is set before the first read; `done_bytes` grows
// up to it.
struct LoadProgress {
  std::atomic<int64_t> total_bytes{0};
  std::atomic<int64_t> done_bytes{0};
};
absl::Status LoadWeights(const Checkpoint& checkpoint, const RankShard& shard,
                         const ModelWeights& weights, Backend& backend, int num_threads,
                         LoadProgress* progress, const std::function<bool()>& cancelled,
                         absl::Span<const std::shared_ptr<Checkpoint>> adapters = {});

}  // namespace bulkhead
