// One rank's weights: how they lie in the weights arena, and where the loader puts each part.
// Laying out with no memory behind the allocator is the plan; with memory it is the run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "memory/ledger.h"
#include "memory/linear.h"
#include "shard/shard_plan.h"
#include "shard/weight_loader.h"

namespace bulkhead {

// A view of no columns where the model has no such vector. All vectors are [1, n] f32.
struct LayerWeights {
  ConstMatrixView input_norm;  // [1, D]
  // One matrix [(h + 2k) d, D]: this rank's q heads, k heads, v heads; or, where each has an index
  // of its own, three.
  std::vector<Linear> qkv;
  ConstMatrixView qkv_bias;     // [1, (h + 2k) d]
  ConstMatrixView q_norm;       // [1, d]
  ConstMatrixView k_norm;       // [1, d]
  Linear o;                     // [D, h d]
  ConstMatrixView o_bias;       // [1, D], whole on every rank: added after the sum
  ConstMatrixView mlp_norm;     // [1, D]
  std::vector<Linear> gate_up;  // likewise [2f, D]: gate, then up
  ConstMatrixView gate_up_bias;
  Linear down;                // [D, f]
  ConstMatrixView down_bias;  // [1, D], whole on every rank
};

struct ModelWeights {
  std::vector<LayerWeights> layers;
  Linear embedding;  // [v, D]
  Linear lm_head;    // [v, D]; the embedding itself when tied
  ConstMatrixView final_norm;
};

ModelWeights LayOutWeights(const ModelConfig& config, const RankShard& shard,
                           const WeightFormats& held_as, const BackendSizes& sizes,
                           BumpAllocator& allocator);

// Reads this rank's part of the checkpoint into weights that were laid out over memory. Not
// collective. `total_bytes` is set before the first read; `done_bytes` grows up to it.
struct LoadProgress {
  std::atomic<int64_t> total_bytes{0};
  std::atomic<int64_t> done_bytes{0};
};
absl::Status LoadWeights(const Checkpoint& checkpoint, const ModelConfig& config,
                         const RankShard& shard, const ModelWeights& weights, Backend& backend,
                         int num_threads, LoadProgress* progress,
                         const std::function<bool()>& cancelled);

}  // namespace bulkhead
