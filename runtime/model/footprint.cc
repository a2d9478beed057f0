#include "runtime/model/footprint.h"

#include <algorithm>
#include <map>

#include "runtime/engine/sampler.h"
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

// Of a row's lists of candidates, alike on all ranks.
int64_t ListCols(const ShardPlan& plan) {
  const std::vector<int64_t> cols = plan.vocab_cols();
  return ListsOfRank(*std::max_element(cols.begin(), cols.end())) * kCandidateCols;
}

}  // namespace

Activations LayOutActivations(const ShardPlan& plan, int rank, const ModelLimits& limits,
                              const BackendSizes& sizes, BumpAllocator& allocator) {
  const DType inputs = sizes.product_input_dtype(limits.weights.layers);
  const int64_t rows = limits.max_num_batched_tokens;
  Activations act;
  act.hidden = F32Matrix(allocator, rows, plan.config().hidden_size);
  act.normed = Matrix(allocator, inputs, rows, plan.config().hidden_size);
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

int ModelLimits::num_kv_groups() const {
  const auto last = std::max_element(kv_group_of_layer.begin(), kv_group_of_layer.end());
  return last == kv_group_of_layer.end() ? 1 : *last + 1;
}

std::vector<KvPlace> KvPlacesOf(const RankShard& shard, const ModelLimits& limits) {
  std::vector<KvPlace> places;
  std::vector<int> layers(limits.num_kv_groups(), 0);  // of each group so far
  int states = 0;
  for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer) {
    if (shard.model->UsesDelta(static_cast<int>(layer))) {
      places.push_back({0, states++});
      continue;
    }
    const int group = limits.kv_group_of_layer.empty() ? 0 : limits.kv_group_of_layer[layer];
    places.push_back({group, layers[group]++});
  }
  return places;
}

StepArrays LayOutStepArrays(const ModelLimits& limits, BumpAllocator& allocator) {
  const int64_t seqs = limits.max_num_seqs;
  const int64_t tokens = limits.max_num_batched_tokens;
  StepArrays arrays;
  arrays.block_tables = Int32Array(
      allocator, int64_t{limits.num_kv_groups()} * limits.table_rows() * limits.blocks_per_seq());
  arrays.seq_begin = Int32Array(allocator, seqs + 1);
  arrays.seq_slot = Int32Array(allocator, seqs);
  arrays.position = Int32Array(allocator, tokens);
  arrays.token_seq = Int32Array(allocator, tokens);
  arrays.token_ids = Int32Array(allocator, tokens);
  arrays.logit_rows = Int32Array(allocator, tokens);
  return arrays;
}

LogitBuffers LayOutLogits(const ShardPlan& plan, int rank, const ModelLimits& limits,
                          const BackendSizes& sizes, BumpAllocator& allocator) {
  const int64_t host_rows = TileRows(limits);
  const int64_t rows =
      sizes.samples_tokens()
          ? std::max<int64_t>(host_rows, std::min(kSampledTileRows, limits.max_num_seqs))
          : host_rows;
  LogitBuffers logits;
  if (!plan.rank(rank).last_stage()) return logits;
  logits.selected = F32Matrix(allocator, rows, plan.config().hidden_size);
  logits.part = F32Matrix(allocator, rows, plan.rank(rank).vocab.size());
  if (plan.size() == 1) {
    logits.whole = logits.part.Rows(0, host_rows);
  } else if (rank == 0) {
    logits.whole = F32Matrix(allocator, host_rows, plan.config().vocab_size);
  }
  if (rank == 0)
    logits.sampler_scratch = allocator.Next(Sampler::ScratchBytes(plan.config().vocab_size));
  return logits;
}

SamplingBuffers LayOutSampling(const ShardPlan& plan, int rank, const ModelLimits& limits,
                               const BackendSizes& sizes, BumpAllocator& allocator) {
  SamplingBuffers buffers;
  if (!sizes.samples_tokens() || !plan.rank(rank).last_stage()) return buffers;
  const int64_t rows = limits.max_num_seqs;
  buffers.last_sampled = Int32Array(allocator, rows);
  buffers.lists = F32Matrix(allocator, rows, ListCols(plan));
  if (rank != 0) return buffers;
  buffers.all_lists =
      plan.size() == 1 ? buffers.lists : F32Matrix(allocator, rows, plan.size() * ListCols(plan));
  buffers.params = reinterpret_cast<TokenSampling*>(
      allocator.Next(rows * static_cast<int64_t>(sizeof(TokenSampling))));
  buffers.banned = Int32Array(allocator, rows * kCandidates);
  buffers.sampled = Int32Array(allocator, rows);
  return buffers;
}

namespace {

StepLimits StepLimitsOf(const RankShard& shard, const ModelLimits& limits, int64_t max_inputs) {
  StepLimits step{limits.max_num_batched_tokens, limits.max_num_seqs, limits.max_model_len};
  step.max_inputs = max_inputs;
  if (limits.activation == ActivationDType::kInt8) step.max_int8_inputs = max_inputs;
  const ModelConfig& model = *shard.model;
  if (model.moe.num_experts > 0) {
    step.experts_per_token = model.moe.num_experts_per_tok;
    step.max_expert_inputs =
        std::max<int64_t>({model.hidden_size, shard.expert_mlp.size(), shard.shared_mlp.size()});
  }
  step.delta_key_dim = model.delta.key_dim;
  step.delta_value_dim = model.delta.value_dim;
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
  workspace.positions.rope = table(RotaryDim(config.rope, config.head_dim));
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

KvGeometry KvGeometryOf(const ShardPlan& plan, int rank, const ModelLimits& limits) {
  const RankShard& shard = plan.rank(rank);
  const std::vector<KvPlace> places = KvPlacesOf(shard, limits);
  int num_layers = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto layer = static_cast<int>(shard.layers.begin + static_cast<int64_t>(i));
    if (!shard.model->UsesDelta(layer)) num_layers = std::max(num_layers, places[i].layer + 1);
  }
  return KvGeometry{.num_layers = num_layers,
                    .kv_heads = static_cast<int>(shard.kv_heads.size()),
                    .head_dim = plan.config().CachedDim(),
                    .block_tokens = limits.block_tokens,
                    .format = limits.kv_format,
                    .latent = plan.config().has_latents()};
}

StateGeometry StateGeometryOf(const ShardPlan& plan, int rank, const ModelLimits& limits) {
  const RankShard& shard = plan.rank(rank);
  const GatedDeltaConfig& delta = shard.model->delta;
  StateGeometry geometry{.num_slots = limits.max_num_seqs,
                         .conv_taps = delta.conv_taps,
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

HeadLayout HeadLayoutOf(const ShardPlan& plan, int rank) {
  const RankShard& shard = plan.rank(rank);
  return HeadLayout{.num_heads = static_cast<int>(shard.heads.size()),
                    .num_kv_heads = static_cast<int>(shard.kv_heads.size()),
                    .head_dim = plan.config().CachedDim(),
                    .head_to_kv = shard.head_to_kv.data(),
                    .value_dim = plan.config().latent.kv_rank};
}

CommLimits CommLimitsOf(const ShardPlan& plan, const ModelLimits& limits) {
  const std::vector<int64_t> cols = plan.vocab_cols();
  CommLimits comm;
  comm.transport = limits.transport;
  // Of the residual stream, and of the squares of q's and of k's heads.
  comm.max_sum_elements =
      int64_t{limits.max_num_batched_tokens} * std::max(2, plan.config().hidden_size);
  comm.max_gather_elements = TileRows(limits) * *std::max_element(cols.begin(), cols.end());
  if (limits.transport != Transport::kShared) {  // devices, which sample from candidates
    comm.max_gather_elements =
        std::max(comm.max_gather_elements, limits.max_num_seqs * ListCols(plan));
  }
  return comm;
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
  set(MemoryCategory::kCommunication, CommunicationBytes(CommLimitsOf(plan, limits), plan.size()));
  BumpAllocator activations;
  LayOutActivations(plan, rank, limits, sizes, activations);
  set(MemoryCategory::kActivations, activations.used_bytes());
  BumpAllocator arrays;
  LayOutStepArrays(limits, arrays);
  set(MemoryCategory::kBlockTables, arrays.used_bytes());
  BumpAllocator logits;
  LayOutLogits(plan, rank, limits, sizes, logits);
  LayOutSampling(plan, rank, limits, sizes, logits);
  set(MemoryCategory::kLogits, logits.used_bytes());
  set(MemoryCategory::kState, StateGeometryOf(plan, rank, limits).Bytes());
  needs.stored_weight_bytes = weights.stored_bytes;
  needs.kv_block_bytes = KvGeometryOf(plan, rank, limits).BlockBytes();
  BumpAllocator workspace;
  LayOutWorkspace(plan, rank, StepLimitsOf(plan.rank(rank), limits, weights.max_inputs), sizes,
                  workspace);
  set(MemoryCategory::kWorkspace, workspace.used_bytes() + needs.kv_block_bytes);
  return needs;
}

}  // namespace bulkhead
