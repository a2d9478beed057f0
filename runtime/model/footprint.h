// Footprint: every arena of one rank and its size, as a function of config, shard and limits alone.
// The planner calls the same functions with no memory behind them, so the plan is the run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "kernels/backend.h"
#include "kernels/sample/op.h"
#include "memory/capacity.h"
#include "memory/kv_cache.h"
#include "memory/ledger.h"
#include "memory/recurrent_state.h"
#include "runtime/model/weights.h"
#include "shard/shard_plan.h"

namespace bulkhead {

// What the group agreed on at start.
struct ModelLimits : Limits {
  WeightFormats weights;
  ActivationDType activation = ActivationDType::kF32;  // of products with quantised weights
  KvFormat kv_format = KvFormat::kF32;
  Transport transport = Transport::kShared;
  DType sum_dtype = DType::kF32;  // CommLimits::sum_dtype
  AttentionDType attention = AttentionDType::kF32;
  // Of a model with states: there are as many snapshots of them as max_num_seqs.
  bool caches_states = false;
  // Of speculative decoding: tokens that a step computes of a sequence after the one that it would
  // compute anyhow, at most. 0 of a draft model.
  int max_drafts = 0;
  // Tokens of drafts that are computed of a sequence and may be rejected, by a draft model, too.
  int max_rejected = 0;

  int num_snapshots() const { return caches_states ? max_num_seqs : 0; }
  // Rows of a group's block tables: one for each slot, and that of padding.
  int table_rows() const { return max_num_seqs + 1; }
};

// Rows whose logits the host wants are computed in tiles of at most this many, rows that the device
// samples from in larger ones: it reads the vocabulary's weight once a tile.
inline constexpr int kLogitTileRows = 32;
inline constexpr int kSampledTileRows = 128;
inline constexpr int64_t kSamplers = 8;  // rows that a host samples at once

// T = max_num_batched_tokens rows each.
struct Activations {
  MatrixView hidden;                // [T, D] f32: the residual stream
  MatrixView normed;                // [T, D] product inputs
  MatrixView mtp_input;             // [T, 2D] f32, of an MTP layer: norms of embeddings and states
  std::vector<MatrixView> buffers;  // of the family, by slot
  ExpertRouting routing;            // of a mixture of experts
  MatrixView per_layer_inputs;      // [T, L P] f32, of all layers of a step
  MatrixView low_rank;              // [T, most.inner] f32, of adapters: A x
  // B of that, of kLowRankRows tokens at a time.
  MatrixView low_rank_out;
};
inline constexpr int64_t kLowRankRows = 64;
Activations LayOutActivations(const ShardPlan& plan, int rank, const ModelLimits& limits,
                              const BackendSizes& sizes, BumpAllocator& allocator);

// The block tables and the indices of a step: what StepIndex points into. A group's last table is
// that of rows that a step is padded with: all block 0.
struct StepArrays {
  int32_t* block_tables = nullptr;  // [groups, table_rows, blocks_per_seq]
  // One copy takes all from here to the last change.
  int32_t* seq_begin = nullptr;      // [max_num_seqs + 1]
  int32_t* seq_slot = nullptr;       // [max_num_seqs]
  int32_t* table_changes = nullptr;  // [MaxTableChanges, 2] a place in block_tables, its block
  int32_t* position = nullptr;       // [T]
  int32_t* token_seq = nullptr;      // [T]
  int32_t* token_ids = nullptr;      // [T]
  int32_t* logit_rows = nullptr;     // [T]
  int32_t* hidden_rows = nullptr;    // [T] of an MTP layer
};
// An entry of every table: a sequence that decodes adds one at most. Where a table changes in more
// places than kSmallTableChange it is copied by itself.
inline int64_t MaxTableChanges(const ModelLimits& limits) {
  return int64_t{limits.num_kv_groups()} * limits.table_rows();
}
inline constexpr int kSmallTableChange = 16;
StepArrays LayOutStepArrays(const ModelConfig& config, const ModelLimits& limits,
                            BumpAllocator& allocator);

// Most rows that the device samples from in a step.
inline int64_t MaxSampledRows(const ModelLimits& limits) {
  const int64_t seqs = limits.max_num_seqs;
  return std::max<int64_t>(
      seqs, std::min<int64_t>(limits.max_num_batched_tokens, seqs * (1 + limits.max_drafts)));
}
// In one launch: max_num_seqs, or a tile of logits where more rows than those can be sampled.
inline int64_t SampledAtOnce(const ModelLimits& limits) {
  return std::max<int64_t>(limits.max_num_seqs,
                           std::min<int64_t>(kSampledTileRows, MaxSampledRows(limits)));
}
// Most full rows of logits that the device samples from at once.
int64_t WholeRowsAtOnce(const ShardPlan& plan, const ModelLimits& limits);

// Whether every rank samples some of a tile's rows.
bool SharesSamples(const ShardPlan& plan, const BackendSizes& sizes);
// Most rows of a tile sampled by a rank other than 0.
int64_t SharedTileRows(const ShardPlan& plan, const ModelLimits& limits);

// Buffers of the last stage.
struct LogitBuffers {
  MatrixView selected;  // [R, D], R of the larger tiles
  MatrixView part;      // [R, v] this rank's columns
  // [R', V] rows that this rank samples, on rank 0 all; of the part in a group of one. Empty where
  // rank 0 alone samples.
  MatrixView whole;
  // Of a Sampler each: as many as rows may be sampled at once.
  std::vector<std::byte*> sampler_scratch;
};
LogitBuffers LayOutLogits(const ShardPlan& plan, int rank, const ModelLimits& limits,
                          const BackendSizes& sizes, BumpAllocator& allocator);

// What sampling on the device takes (kernels/sample/op.h); nothing where the host samples. S =
// max_num_seqs, R = MaxSampledRows, L = SampledAtOnce.
struct SamplingBuffers {
  // [S] by slot; after them [R], which nothing reads, of the rows of sequences with several.
  int32_t* last_sampled = nullptr;
  MatrixView lists;  // [L, slices x kCandidateCols] this rank's candidates
  // Rank 0:
  MatrixView all_lists;             // [ranks x L, lists' columns]; the rank's own in a group of one
  TokenSampling* params = nullptr;  // [R]
  int32_t* banned = nullptr;        // [S x kCandidates]
  int32_t* sampled = nullptr;       // [R]
  MatrixView row_scratch;           // [WholeRowsAtOnce, RowScratchCols]
};
SamplingBuffers LayOutSampling(const ShardPlan& plan, int rank, const ModelLimits& limits,
                               const BackendSizes& sizes, BumpAllocator& allocator);

// By position, [max_model_len, cols]: what turns the heads, and q's scale. Those that the model
// does not need are empty.
struct PositionTables {
  MatrixView rope;         // r columns
  MatrixView window_rope;  // of layers with a window, where theirs is another
  MatrixView q_scale;      // one column
};
struct Workspace {
  PositionTables positions;
  std::byte* scratch = nullptr;
};
Workspace LayOutWorkspace(const ShardPlan& plan, int rank, const ModelLimits& limits,
                          const BackendSizes& sizes, BumpAllocator& allocator);

std::vector<LayerPlace> LayerPlacesOf(const RankShard& shard,
                                      const ModelLimits& limits);  // [its layers]

StepLimits StepLimitsOf(const ShardPlan& plan, int rank, const ModelLimits& limits);
StateGeometry StateGeometryOf(const ShardPlan& plan, int rank, const ModelLimits& limits);
// With limits.num_kv_blocks.
KvArena KvArenaOf(const ShardPlan& plan, int rank, const ModelLimits& limits,
                  std::byte* base = nullptr);
// Head layout of the layers with full_heads, or of the others; points into `plan`.
HeadLayout HeadLayoutOf(const ShardPlan& plan, int rank, bool full = false);
// Elements of a sum over ranks at most: of the residual stream, of the squares of q's and k's heads
// and of one token's inputs of all layers.
int64_t MaxSumElements(const ModelConfig& config, int64_t max_tokens);
CommLimits CommLimitsOf(const ShardPlan& plan, const ModelLimits& limits);
// For either.
CommLimits Larger(const CommLimits& a, const CommLimits& b);

// Every term's bytes. Block 0 is workspace; KV, which is 0 here, counts the usable blocks.
// `weights` are WeightNeedsOf the rank, which take longer to find than all the rest.
RankNeeds FootprintOf(const ShardPlan& plan, int rank, const ModelLimits& limits,
                      const BackendSizes& sizes, const WeightNeeds& weights);
RankNeeds FootprintOf(const ShardPlan& plan, int rank, const ModelLimits& limits,
                      const BackendSizes& sizes);

// Needs of a rank's model and its draft model together, with sums within the limits `comm`.
RankNeeds WithDraftModel(RankNeeds needs, const RankNeeds& draft, const CommLimits& comm, int rank,
                         int size);

}  // namespace bulkhead
