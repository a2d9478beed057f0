#include "runtime/model/footprint.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "comm/staged/staged_communicator.h"
#include "runtime/engine/sampler.h"
#include "runtime/engine/shared_samples.h"
#include "runtime/model/device_sampler.h"
#include "runtime/model/family.h"

namespace bulkhead {
namespace {

MatrixView Matrix(BumpAllocator& allocator, DType dtype, int64_t rows, int64_t cols) {
  return MatrixView(allocator.Next(rows * cols * DTypeBytes(dtype)), dtype, rows, cols);
}
MatrixView F32Matrix(BumpAllocator& allocator, int64_t rows, int64_t cols) {
  return Matrix(allocator, DType::kF32, rows, cols);
}

int32_t* Int32Array(BumpAllocator& allocator, int64_t count) {
  return reinterpret_cast<int32_t*>(allocator.Next(count * static_cast<int64_t>(sizeof(int32_t))));
}

float* F32Array(BumpAllocator& allocator, int64_t count) {
  return reinterpret_cast<float*>(allocator.Next(count * static_cast<int64_t>(sizeof(float))));
}

int64_t TileRows(const ModelLimits& limits) {
  return std::min(kLogitTileRows, limits.max_num_batched_tokens);
}

// Rows per tile of logits, if the device samples.
int64_t DeviceTileRows(const ModelLimits& limits) {
  return std::max(TileRows(limits), std::min<int64_t>(kSampledTileRows, MaxSampledRows(limits)));
}

// Columns of a row's candidate lists, equal on all ranks.
int64_t ListCols(const ShardPlan& plan) {
  const std::vector<int64_t> cols = plan.vocab_cols();
  return ListsOfRank(*std::max_element(cols.begin(), cols.end())) * kCandidateCols;
}

}  // namespace

// As many as a tile of logits has; with several ranks, as many as are gathered at once.
int64_t WholeRowsAtOnce(const ShardPlan& plan, const ModelLimits& limits) {
  return plan.size() == 1 ? DeviceTileRows(limits) : TileRows(limits);
}

bool SharesSamples(const ShardPlan& plan, const BackendSizes& sizes) {
  return plan.size() > 1 && !sizes.samples_tokens();
}

int64_t SharedTileRows(const ShardPlan& plan, const ModelLimits& limits) {
  return CeilDiv(TileRows(limits), plan.size());
}

Activations LayOutActivations(const ShardPlan& plan, int rank, const ModelLimits& limits,
                              const BackendSizes& sizes, BumpAllocator& allocator) {
  const DType inputs = sizes.product_input_dtype(limits.weights.layers);
  const int64_t rows = limits.max_num_batched_tokens;
  Activations act;
  act.hidden = F32Matrix(allocator, rows, plan.config().hidden_size);
  act.normed = Matrix(allocator, inputs, rows, plan.config().hidden_size);
  if (plan.config().mtp_layer > 0) {
    act.mtp_input = F32Matrix(allocator, rows, int64_t{2} * plan.config().hidden_size);
  }
  const MoeConfig& moe = plan.config().moe;
  if (moe.num_experts > 0) {
    const int64_t pairs = rows * moe.num_experts_per_tok;
    act.routing = {.num_experts = moe.num_experts,
                   .experts_per_token = moe.num_experts_per_tok,
                   .experts = Int32Array(allocator, pairs),
                   .weights = F32Array(allocator, pairs),
                   .expert_begin = Int32Array(allocator, moe.num_experts + 1),
                   .pair_token = Int32Array(allocator, pairs),
                   .pair_weight = F32Array(allocator, pairs)};
  }
  const int per_layer = plan.config().per_layer_input_size;
  act.per_layer_inputs =
      F32Matrix(allocator, rows, int64_t{plan.config().num_hidden_layers} * per_layer);
  const LowRankShape low_rank = MostOf(plan.config().adapters);
  act.low_rank = F32Matrix(allocator, rows, low_rank.inner);
  act.low_rank_out = F32Matrix(allocator, std::min(rows, kLowRankRows), low_rank.outputs);
  std::map<int, BumpAllocator> stages;
  for (const BufferRow& row : FamilyOf(plan.config()).buffers(plan.rank(rank))) {
    BumpAllocator& stage = stages.try_emplace(row.stage, allocator).first->second;
    if (row.slot >= static_cast<int>(act.buffers.size())) act.buffers.resize(row.slot + 1);
    act.buffers[row.slot] = Matrix(stage, row.product_input ? inputs : DType::kF32,
                                   rows * row.rows_per_token, row.cols);
  }
  for (const auto& [number, stage] : stages) {
    if (stage.used_bytes() > allocator.used_bytes()) allocator = stage;
  }
  return act;
}

namespace {

HeadLayout HeadLayoutOf(const RankShard& shard, bool full) {
  const ModelConfig& model = *shard.model;
  const Range& kv_heads = full ? shard.full_kv_heads : shard.kv_heads;
  return {.num_heads = static_cast<int>(shard.heads.size()),
          .num_kv_heads = static_cast<int>(kv_heads.size()),
          .head_dim = full ? model.full_heads.head_dim : model.CachedDim(),
          .head_to_kv = full ? shard.full_head_to_kv.data() : shard.head_to_kv.data(),
          .value_dim = model.latent.kv_rank};
}

struct KvLayout {
  std::vector<LayerPlace> places;  // [layers of the rank]
  int64_t block_bytes = 0;
  int64_t layers_bytes = 0;  // of all groups' blocks together
};

KvLayout KvLayoutOf(const RankShard& shard, const ModelLimits& limits) {
  const ModelConfig& model = *shard.model;
  KvLayout layout;
  std::vector<int64_t> used_bytes(limits.num_kv_groups(), 0);  // of a block of each group
  int states = 0;
  for (auto layer = static_cast<int>(shard.layers.begin); layer < shard.layers.end; ++layer) {
    LayerPlace place;
    if (model.UsesDelta(layer)) {
      place.state_layer = states++;
    } else if (!model.OwnsKv(layer)) {
      const int64_t owner = model.kv_layer[layer] - shard.layers.begin;
      BH_CHECK(owner >= 0);  // in the same pipeline stage
      place = layout.places[owner];
    } else {
      const HeadLayout heads = HeadLayoutOf(shard, model.HasFullHeads(layer));
      place.group = limits.kv_group_of_layer.empty() ? 0 : limits.kv_group_of_layer[layer];
      place.geometry = {.kv_heads = heads.num_kv_heads,
                        .head_dim = heads.head_dim,
                        .block_tokens = limits.block_tokens,
                        .format = limits.kv_format,
                        .latent = heads.latent()};
      place.offset_bytes = used_bytes[place.group];
      used_bytes[place.group] += place.geometry.LayerBlockBytes();
    }
    layout.places.push_back(place);
  }
  layout.block_bytes = *std::max_element(used_bytes.begin(), used_bytes.end());
  layout.layers_bytes = std::accumulate(used_bytes.begin(), used_bytes.end(), int64_t{0});
  return layout;
}

}  // namespace

std::vector<LayerPlace> LayerPlacesOf(const RankShard& shard, const ModelLimits& limits) {
  return KvLayoutOf(shard, limits).places;
}

StepArrays LayOutStepArrays(const ModelConfig& config, const ModelLimits& limits,
                            BumpAllocator& allocator) {
  const int64_t seqs = limits.max_num_seqs;
  const int64_t tokens = limits.max_num_batched_tokens;
  StepArrays arrays;
  arrays.block_tables = Int32Array(
      allocator, int64_t{limits.num_kv_groups()} * limits.table_rows() * limits.blocks_per_seq());
  arrays.seq_begin = Int32Array(allocator, seqs + 1);
  arrays.seq_slot = Int32Array(allocator, seqs);
  arrays.table_changes = Int32Array(allocator, 2 * MaxTableChanges(limits));
  arrays.position = Int32Array(allocator, tokens);
  arrays.token_seq = Int32Array(allocator, tokens);
  arrays.token_ids = Int32Array(allocator, tokens);
  arrays.logit_rows = Int32Array(allocator, tokens);
  if (config.mtp_layer > 0) arrays.hidden_rows = Int32Array(allocator, tokens);
  return arrays;
}

LogitBuffers LayOutLogits(const ShardPlan& plan, int rank, const ModelLimits& limits,
                          const BackendSizes& sizes, BumpAllocator& allocator) {
  const int64_t host_rows = TileRows(limits);
  const int64_t rows = sizes.samples_tokens() ? DeviceTileRows(limits) : host_rows;
  LogitBuffers logits;
  if (!plan.rank(rank).last_stage()) return logits;
  logits.selected = F32Matrix(allocator, rows, plan.config().hidden_size);
  logits.part = F32Matrix(allocator, rows, plan.rank(rank).vocab.size());
  if (plan.size() == 1) {
    logits.whole = logits.part.Rows(0, host_rows);
  } else if (rank == 0 || SharesSamples(plan, sizes)) {
    logits.whole = F32Matrix(allocator, rank == 0 ? host_rows : SharedTileRows(plan, limits),
                             plan.config().vocab_size);
  }
  // The same number on every machine; if the device samples, the host's thread does the rest.
  const int64_t samplers = std::min(sizes.samples_tokens() ? 1 : kSamplers, logits.whole.rows());
  for (int64_t i = 0; i < samplers; ++i) {
    logits.sampler_scratch.push_back(
        allocator.Next(Sampler::ScratchBytes(plan.config().vocab_size)));
  }
  return logits;
}

SamplingBuffers LayOutSampling(const ShardPlan& plan, int rank, const ModelLimits& limits,
                               const BackendSizes& sizes, BumpAllocator& allocator) {
  SamplingBuffers buffers;
  if (!sizes.samples_tokens() || !plan.rank(rank).last_stage()) return buffers;
  const int64_t seqs = limits.max_num_seqs;
  const int64_t rows = MaxSampledRows(limits);
  const int64_t at_once = SampledAtOnce(limits);
  buffers.last_sampled = Int32Array(allocator, limits.max_drafts > 0 ? seqs + rows : seqs);
  buffers.lists = F32Matrix(allocator, at_once, ListCols(plan));
  if (rank != 0) return buffers;
  buffers.all_lists = plan.size() == 1
                          ? buffers.lists
                          : F32Matrix(allocator, plan.size() * at_once, ListCols(plan));
  buffers.params = reinterpret_cast<TokenSampling*>(
      allocator.Next(rows * static_cast<int64_t>(sizeof(TokenSampling))));
  buffers.banned = Int32Array(allocator, seqs * kCandidates);
  buffers.sampled = Int32Array(allocator, rows);
  buffers.row_scratch =
      F32Matrix(allocator, WholeRowsAtOnce(plan, limits), RowScratchCols(plan.config().vocab_size));
  return buffers;
}

namespace {

StepLimits StepLimitsOf(const RankShard& shard, const ModelLimits& limits, int64_t max_inputs) {
  StepLimits step{limits.max_num_batched_tokens, limits.max_num_seqs, limits.max_model_len};
  step.max_inputs = max_inputs;
  step.bf16_inputs = limits.activation == ActivationDType::kBf16;
  step.bf16_tiles = limits.activation == ActivationDType::kBf16Amx;
  step.attention_in_bf16 = limits.attention != AttentionDType::kF32;
  if (limits.activation == ActivationDType::kInt8) step.max_int8_inputs = max_inputs;
  const ModelConfig& model = *shard.model;
  if (model.moe.num_experts > 0) {
    step.num_experts = model.moe.num_experts;
    step.experts_per_token = model.moe.num_experts_per_tok;
    step.max_expert_inputs =
        std::max<int64_t>({model.hidden_size, shard.expert_mlp.size(), shard.shared_mlp.size()});
  }
  step.delta_key_dim = model.delta.key_dim;
  step.delta_value_dim = model.delta.value_dim;
  if (model.full_heads.head_dim > 0) step.full_heads = HeadLayoutOf(shard, true);
  if (limits.weights.group_size > 0) {
    step.min_group = std::min(step.min_group, limits.weights.group_size);
  }
  step.quantized_weights = IsQuantized(limits.weights.layers) || IsQuantized(limits.weights.tables);
  return step;
}

Workspace LayOutWorkspace(const ShardPlan& plan, int rank, const StepLimits& limits,
                          const BackendSizes& sizes, BumpAllocator& allocator) {
  Workspace workspace;
  const ModelConfig& config = plan.config();
  const auto table = [&](int64_t cols) { return F32Matrix(allocator, limits.max_model_len, cols); };
  const int full_dim = config.full_heads.head_dim;
  workspace.positions.rope =
      table(RotaryDim(config.rope, full_dim > 0 ? full_dim : config.head_dim));
  if (config.window_rope.has_value()) {
    workspace.positions.window_rope = table(RotaryDim(*config.window_rope, config.head_dim));
  }
  if (config.q_scale_beta != 0) workspace.positions.q_scale = table(1);
  workspace.scratch = allocator.Next(sizes.WorkspaceBytes(limits, HeadLayoutOf(plan, rank)));
  return workspace;
}

}  // namespace

StepLimits StepLimitsOf(const ShardPlan& plan, int rank, const ModelLimits& limits) {
  const RankShard& shard = plan.rank(rank);
  return StepLimitsOf(shard, limits, MaxInputsOf(TensorsOf(shard), shard));
}

Workspace LayOutWorkspace(const ShardPlan& plan, int rank, const ModelLimits& limits,
                          const BackendSizes& sizes, BumpAllocator& allocator) {
  return LayOutWorkspace(plan, rank, StepLimitsOf(plan, rank, limits), sizes, allocator);
}

KvArena KvArenaOf(const ShardPlan& plan, int rank, const ModelLimits& limits, std::byte* base) {
  return {limits.num_kv_blocks, KvLayoutOf(plan.rank(rank), limits).block_bytes, base};
}

StateGeometry StateGeometryOf(const ShardPlan& plan, int rank, const ModelLimits& limits) {
  const RankShard& shard = plan.rank(rank);
  const GatedDeltaConfig& delta = shard.model->delta;
  StateGeometry geometry{.num_slots = limits.max_num_seqs,
                         .num_snapshots = limits.num_snapshots(),
                         .conv_taps = delta.conv_taps,
                         .max_drafts = limits.max_rejected,
                         .heads = {.num_key_heads = static_cast<int>(shard.delta_keys.size()),
                                   .num_value_heads = static_cast<int>(shard.delta_values.size()),
                                   .key_dim = delta.key_dim,
                                   .value_dim = delta.value_dim,
                                   .value_to_key = shard.value_to_key.data()}};
  for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer) {
    geometry.num_layers += shard.model->UsesDelta(static_cast<int>(layer)) ? 1 : 0;
  }
  return geometry;
}

HeadLayout HeadLayoutOf(const ShardPlan& plan, int rank, bool full) {
  return HeadLayoutOf(plan.rank(rank), full);
}

int64_t MaxSumElements(const ModelConfig& config, int64_t max_tokens) {
  return std::max(max_tokens * std::max(2, config.hidden_size),
                  int64_t{config.num_hidden_layers} * config.per_layer_input_size);
}

CommLimits CommLimitsOf(const ShardPlan& plan, const ModelLimits& limits) {
  const std::vector<int64_t> cols = plan.vocab_cols();
  CommLimits comm;
  comm.transport = limits.transport;
  comm.sum_dtype = limits.sum_dtype;
  comm.max_sum_elements = MaxSumElements(plan.config(), limits.max_num_batched_tokens);
  comm.max_gather_elements = TileRows(limits) * *std::max_element(cols.begin(), cols.end());
  if (limits.transport != Transport::kShared) {  // devices sample from candidates
    comm.max_gather_elements =
        std::max(comm.max_gather_elements, SampledAtOnce(limits) * ListCols(plan));
  } else if (plan.size() > 1) {
    comm.max_gather_elements =
        std::max(comm.max_gather_elements,
                 SharedTileRows(plan, limits) *
                     std::max<int64_t>(plan.config().vocab_size, kMaxSampleFloats));
  }
  return comm;
}

CommLimits Larger(const CommLimits& a, const CommLimits& b) {
  CommLimits larger = a;
  larger.max_sum_elements = std::max(a.max_sum_elements, b.max_sum_elements);
  larger.max_gather_elements = std::max(a.max_gather_elements, b.max_gather_elements);
  return larger;
}

RankNeeds WithDraftModel(RankNeeds needs, const RankNeeds& draft, const CommLimits& comm, int rank,
                         int size) {
  needs.draft_bytes = draft.category_bytes;
  needs.draft_bytes[static_cast<int>(MemoryCategory::kCommunication)] = 0;
  const CategoryBytes& parts = needs.draft_bytes;
  needs.category_bytes[static_cast<int>(MemoryCategory::kDraftModel)] =
      std::accumulate(parts.begin(), parts.end(), int64_t{0});
  needs.category_bytes[static_cast<int>(MemoryCategory::kCommunication)] =
      CommunicationBytes(comm, size);
  needs.draft_bytes[static_cast<int>(MemoryCategory::kKv)] = draft.kv_block_bytes;
  needs.kv_block_bytes += draft.kv_block_bytes;
  needs.kv_layers_bytes += draft.kv_layers_bytes;
  // An upper bound: lists are for the larger tiles.
  needs.host_bytes += draft.host_bytes - draft.sum_host_bytes - needs.sum_host_bytes;
  needs.sum_host_bytes = SumHostBytes(comm, rank, size);
  needs.host_bytes += needs.sum_host_bytes;
  return needs;
}

RankNeeds FootprintOf(const ShardPlan& plan, int rank, const ModelLimits& limits,
                      const BackendSizes& sizes) {
  return FootprintOf(plan, rank, limits, sizes,
                     WeightNeedsOf(plan.rank(rank), limits.weights, sizes));
}

RankNeeds FootprintOf(const ShardPlan& plan, int rank, const ModelLimits& limits,
                      const BackendSizes& sizes, const WeightNeeds& weights) {
  RankNeeds needs;
  const auto set = [&needs](MemoryCategory term, int64_t bytes) {
    needs.category_bytes[static_cast<int>(term)] = bytes;
  };
  set(MemoryCategory::kWeights, weights.arena_bytes);
  const CommLimits comm = CommLimitsOf(plan, limits);
  set(MemoryCategory::kCommunication, CommunicationBytes(comm, plan.size()));
  BumpAllocator activations;
  LayOutActivations(plan, rank, limits, sizes, activations);
  set(MemoryCategory::kActivations, activations.used_bytes());
  BumpAllocator arrays;
  LayOutStepArrays(plan.config(), limits, arrays);
  set(MemoryCategory::kBlockTables, arrays.used_bytes());
  BumpAllocator logits;
  const MatrixView whole = LayOutLogits(plan, rank, limits, sizes, logits).whole;
  LayOutSampling(plan, rank, limits, sizes, logits);
  set(MemoryCategory::kLogits, logits.used_bytes());
  set(MemoryCategory::kState, StateGeometryOf(plan, rank, limits).Bytes());
  needs.stored_weight_bytes = weights.stored_bytes;
  const KvLayout kv = KvLayoutOf(plan.rank(rank), limits);
  needs.kv_block_bytes = kv.block_bytes;
  needs.kv_layers_bytes = kv.layers_bytes;
  BumpAllocator workspace;
  const StepLimits step = StepLimitsOf(plan.rank(rank), limits, weights.max_inputs);
  LayOutWorkspace(plan, rank, step, sizes, workspace);
  set(MemoryCategory::kWorkspace, workspace.used_bytes() + needs.kv_block_bytes);
  if (!sizes.host_memory()) {
    // Host memory of ModelRunner, its samplers and the backend.
    needs.host_bytes =
        arrays.used_bytes() + sizes.WorkspaceHostBytes(step, HeadLayoutOf(plan, rank));
    if (rank == 0) {
      needs.host_bytes += whole.rows() * whole.cols() * DTypeBytes(DType::kF32) +
                          (sizes.samples_tokens() ? DeviceSampler::HostBytes(limits) : 0);
    }
    needs.sum_host_bytes = SumHostBytes(comm, rank, plan.size());
    needs.host_bytes += needs.sum_host_bytes;
  }
  return needs;
}

}  // namespace bulkhead
