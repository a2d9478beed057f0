// One rank's weights: how they lie in the weights arena, and where the loader puts each part; both
// follow from the rows of the family's table. Laying out with no memory behind the allocator is the
// plan; with memory it is the run.
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

// What an adapter adds to some of a weight's outputs: scale * B (A x).
struct LowRank {
  struct Outer {
    int64_t first_output = 0;  // of the weight's
    int64_t first_inner = 0;   // of `a`'s outputs
    int64_t rank = 0;
    float scale = 1;
    Linear b;  // [outputs, rank]
  };
  int adapter = 0;  // from 1 on
  Linear a;         // of all of them: [sum of ranks, inputs]
  std::vector<Outer> outer;
};

// What the rows of one slot are: a matrix, a vector, or a matrix and its bias.
struct Weight {
  // The rows' outputs one after the other in one matrix; apart where each has an index of its own,
  // and a matrix for each expert, or head; of those that are not this rank's without outputs.
  std::vector<Linear> parts;
  ConstMatrixView vector;  // [1, n] f32; of no columns where there is none
  std::vector<LowRank> low_rank;
};

// By slot of the family's file; a slot without rows is an empty Weight.
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
  std::vector<std::vector<LayerWeights>> adapters;  // of each its layers, by AdapterTensors' slots
};

ModelWeights LayOutWeights(const RankShard& shard, const WeightFormats& held_as,
                           const BackendSizes& sizes, BumpAllocator& allocator);

// The rows of a model's layers, once for all layers whose rows differ in their names alone: of
// hundreds of experts and heads a layer, in dozens of layers, they take longest to find.
class LayerKinds {
 public:
  explicit LayerKinds(const ModelConfig& config);

  int size() const { return static_cast<int>(kinds_.size()); }
  const std::vector<TensorRow>& Rows(int kind) const { return kinds_[kind]; }
  // How many of these layers are of the kind.
  int64_t CountIn(Range layers, int kind) const;

 private:
  std::vector<std::vector<TensorRow>> kinds_;
  std::vector<int> kind_of_layer_;  // [L]
};

// What follows from a rank's tensors alone: no limit changes it.
struct WeightNeeds {
  int64_t arena_bytes = 0;   // of LayOutWeights
  int64_t stored_bytes = 0;  // StoredWeightBytes
  int64_t max_inputs = 0;    // K at most of a product
  // Of the host, of weights that are put together there while they are loaded.
  int64_t largest_host_bytes = 0;
  int64_t all_host_bytes = 0;

  // Of those that are begun and not complete, where `num_threads` read (Checkpoint::MostOpenBytes).
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
// What one of its model's adapters takes of the weights' arena.
int64_t AdapterBytes(const RankShard& shard, const WeightFormats& held_as,
                     const BackendSizes& sizes, const AdapterConfig& adapter);
// What a step of one token reads of them: of a mixture of experts those that the token is sent to,
// and of the embedding nothing unless it is also the head. A batch reads the distinct experts that
// its tokens are expected to be sent to, were they chosen at random. One number for each of
// `batches`, which are numbers of tokens.
std::vector<double> ReadWeightBytes(const RankShard& shard, const WeightFormats& held_as,
                                    absl::Span<const int> batches);
int64_t MaxInputsOf(const std::vector<TensorRow>& rows, const RankShard& shard);

// Reads this rank's part of the checkpoint, and of those of the config's adapters, into weights
// that were laid out over memory. Not collective. `total_bytes` is set before the first read;
// `done_bytes` grows up to it.
struct LoadProgress {
  std::atomic<int64_t> total_bytes{0};
  std::atomic<int64_t> done_bytes{0};
};
absl::Status LoadWeights(const Checkpoint& checkpoint, const RankShard& shard,
                         const ModelWeights& weights, Backend& backend, int num_threads,
                         LoadProgress* progress, const std::function<bool()>& cancelled,
                         absl::Span<const std::shared_ptr<Checkpoint>> adapters = {});

}  // namespace bulkhead
