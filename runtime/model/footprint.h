// Footprint: every arena of one rank and its size, a function of config, shard and limits only. The
// planner calls the same functions without memory, so the plan equals the run.
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
  ActivationDType activation = ActivationDType::kF32;  // input of products with quantised weights
  KvFormat kv_format = KvFormat::kF32;
  Transport transport = Transport::kShared;
  DType sum_dtype = DType::kF32;  // CommLimits::sum_dtype
  AttentionDType attention = AttentionDType::kF32;
  // For a model with recurrent states: keeps max_num_seqs snapshots of them.
  bool caches_states = false;
  // Speculative decoding: maximum draft tokens that a step computes per sequence in addition to its
  // next token. 0 for a draft model.
  int max_drafts = 0;
  // Maximum draft tokens per sequence that are computed and may be rejected, including by a draft
  // model.
  int max_rejected = 0;

  int num_snapshots() const { return caches_states ? max_num_seqs : 0; }
  // Rows of a KV group's block tables: one per slot and one for padding.
  int table_rows() const { return max_num_seqs + 1; }
};

// Rows whose logits the host wants are computed in tiles of at most this many, rows that the device
// samples from in larger ones: it reads the vocabulary's weight once per tile.
inline constexpr int kLogitTileRows = 32;
inline constexpr int kSampledTileRows = 128;
inline constexpr int64_t kSamplers = 8;  // rows that a host samples at once

// T = max_num_batched_tokens rows each; D: hidden size.
struct Activations {
  MatrixView hidden;                // [T, D] f32: the residual stream
  MatrixView normed;                // [T, D] product inputs
  MatrixView mtp_input;             // [T, 2D] f32, MTP layer: norms of embeddings and states
  std::vector<MatrixView> buffers;  // the family's, by slot
  ExpertRouting routing;            // for a mixture of experts
  MatrixView per_layer_inputs;      // [T, L P] f32, for all layers of a step
  MatrixView low_rank;              // [T, most.inner] f32, adapters' A x
  // B of low_rank, for kLowRankRows tokens at a time.
  MatrixView low_rank_out;
};
inline constexpr int64_t kLowRankRows = 64;
Activations LayOutActivations(const ShardPlan& plan, int rank, const ModelLimits& limits,
                              const BackendSizes& sizes, BumpAllocator& allocator);

// The block tables and the indices of a step, to which StepIndex points. A group's last table is
// for padding rows: all block 0.
struct StepArrays {
  int32_t* block_tables = nullptr;  // [groups, table_rows, blocks_per_seq]
  // A single copy covers everything from here to the last table change.
  int32_t* seq_begin = nullptr;      // [max_num_seqs + 1]
  int32_t* seq_slot = nullptr;       // [max_num_seqs]
  int32_t* table_changes = nullptr;  // [MaxTableChanges, 2] a place in block_tables, its block
  int32_t* position = nullptr;       // [T]
  int32_t* token_seq = nullptr;      // [T]
  int32_t* token_ids = nullptr;      // [T]
  int32_t* logit_rows = nullptr;     // [T]
  int32_t* hidden_rows = nullptr;    // [T] for an MTP layer
};
// One entry per table: a decoding sequence adds at most one. A table with more than
// kSmallTableChange changed entries is copied separately.
inline int64_t MaxTableChanges(const ModelLimits& limits) {
  return int64_t{limits.num_kv_groups()} * limits.table_rows();
}
inline constexpr int kSmallTableChange = 16;
StepArrays LayOutStepArrays(const ModelConfig& config, const ModelLimits& limits,
                            BumpAllocator& allocator);

// Maximum rows that the device samples from in a step.
inline int64_t MaxSampledRows(const ModelLimits& limits) {
  const int64_t seqs = limits.max_num_seqs;
  return std::max<int64_t>(
      seqs, std::min<int64_t>(limits.max_num_batched_tokens, seqs * (1 + limits.max_drafts)));
}
// Rows sampled in one launch: max_num_seqs, or a tile of logits if a step can sample more rows.
inline int64_t SampledAtOnce(const ModelLimits& limits) {
  return std::max<int64_t>(limits.max_num_seqs,
                           std::min<int64_t>(kSampledTileRows, MaxSampledRows(limits)));
}
// Maximum full rows of logits that the device samples from at once.
int64_t WholeRowsAtOnce(const ShardPlan& plan, const ModelLimits& limits);

// Whether every rank samples some of a tile's rows.
bool SharesSamples(const ShardPlan& plan, const BackendSizes& sizes);
// Maximum rows of a tile sampled by a rank other than 0.
int64_t SharedTileRows(const ShardPlan& plan, const ModelLimits& limits);

// Buffers of the last stage.
struct LogitBuffers {
  MatrixView selected;  // [R, D], R: rows of the larger tiles
  MatrixView part;      // [R, v] this rank's columns
  // [R', V] rows that this rank samples, on rank 0 all rows; aliases `part` in a group of one.
  // Empty on other ranks if only rank 0 samples.
  MatrixView whole;
  // Scratch memory of one Sampler per row that may be sampled at once.
  std::vector<std::byte*> sampler_scratch;
};
LogitBuffers LayOutLogits(const ShardPlan& plan, int rank, const ModelLimits& limits,
                          const BackendSizes& sizes, BumpAllocator& allocator);

// Buffers of sampling on the device (kernels/sample/op.h); empty if the host samples. S =
// max_num_seqs, R = MaxSampledRows, L = SampledAtOnce.
struct SamplingBuffers {
  // [S] by slot; then [R], never read, for rows of sequences with several rows.
  int32_t* last_sampled = nullptr;
  MatrixView lists;  // [L, slices x kCandidateCols] this rank's candidates
  // Rank 0:
  MatrixView all_lists;             // [ranks x L, lists' columns]; `lists` in a group of one
  TokenSampling* params = nullptr;  // [R]
  int32_t* banned = nullptr;        // [S x kCandidates]
  int32_t* sampled = nullptr;       // [R]
  MatrixView row_scratch;           // [WholeRowsAtOnce, RowScratchCols]
};
SamplingBuffers LayOutSampling(const ShardPlan& plan, int rank, const ModelLimits& limits,
                               const BackendSizes& sizes, BumpAllocator& allocator);

// Tables by position, [max_model_len, cols]: RoPE's cosines and sines, and q's scale. Empty if the
// model does not need them.
struct PositionTables {
  MatrixView rope;         // r columns
  MatrixView window_rope;  // for layers with a window, if theirs differs
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
// Has limits.num_kv_blocks blocks; `base` null: layout only.
KvArena KvArenaOf(const ShardPlan& plan, int rank, const ModelLimits& limits,
                  std::byte* base = nullptr);
// Head layout of the layers with full_heads (`full`) or of the others; points into `plan`.
HeadLayout HeadLayoutOf(const ShardPlan& plan, int rank, bool full = false);
// Maximum elements of a sum over ranks: the residual stream, the squares of q's and k's heads, or
// one token's inputs of all layers.
int64_t MaxSumElements(const ModelConfig& config, int64_t max_tokens);
CommLimits CommLimitsOf(const ShardPlan& plan, const ModelLimits& limits);
// Limits that suffice for both `a` and `b`.
CommLimits Larger(const CommLimits& a, const CommLimits& b);

// Bytes of every term. KV block 0 counts as workspace; the KV term, 0 here, is for usable blocks.
// `weights`: the rank's WeightNeedsOf, which takes longer to compute than all the rest.
RankNeeds FootprintOf(const ShardPlan& plan, int rank, const ModelLimits& limits,
                      const BackendSizes& sizes, const WeightNeeds& weights);
RankNeeds FootprintOf(const ShardPlan& plan, int rank, const ModelLimits& limits,
                      const BackendSizes& sizes);

// Needs of a rank's model and its draft model together, with sums within the limits `comm`.
RankNeeds WithDraftModel(RankNeeds needs, const RankNeeds& draft, const CommLimits& comm, int rank,
                         int size);

}  // namespace bulkhead
