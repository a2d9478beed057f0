#include "runtime/model/footprint.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "runtime/engine/sampler.h"

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
  const ModelConfig& config = plan.config();
  const RankShard& shard = plan.rank(rank);
  const DType inputs = sizes.product_input_dtype(limits.weights.layers);
  const int64_t rows = limits.max_num_batched_tokens;
  const int64_t q_cols = shard.heads.size() * config.head_dim;
  const int64_t kv_cols = 2 * shard.kv_heads.size() * config.head_dim;
  Activations act;
  act.hidden = F32Matrix(allocator, rows, config.hidden_size);
  act.normed = Matrix(allocator, inputs, rows, config.hidden_size);
  BumpAllocator attention = allocator;
  act.qkv = F32Matrix(attention, rows, q_cols + kv_cols);
  act.attended = Matrix(attention, inputs, rows, q_cols);
  BumpAllocator mlp = allocator;
  act.gate_up = F32Matrix(mlp, rows, 2 * shard.mlp.size());
  act.gated = Matrix(mlp, inputs, rows, shard.mlp.size());
  allocator = attention.used_bytes() > mlp.used_bytes() ? attention : mlp;
  return act;
}

StepArrays LayOutStepArrays(const ModelLimits& limits, BumpAllocator& allocator) {
  const int64_t seqs = limits.max_num_seqs;
  const int64_t tokens = limits.max_num_batched_tokens;
  StepArrays arrays;
  arrays.block_tables = Int32Array(allocator, (seqs + 1) * limits.blocks_per_seq());
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
  if (!sizes.samples_tokens()) return buffers;
  const int64_t rows = limits.max_num_seqs;
  buffers.last_sampled = Int32Array(allocator, rows);
  buffers.lists = F32Matrix(allocator, rows, ListCols(plan));
  if (rank != 0) return buffers;
  buffers.all_lists =
      plan.size() == 1 ? buffers.lists : F32Matrix(allocator, rows, plan.size() * ListCols(plan));
  buffers.draws = reinterpret_cast<TokenSampling*>(
      allocator.Next(rows * static_cast<int64_t>(sizeof(TokenSampling))));
  buffers.banned = Int32Array(allocator, rows * kCandidates);
  buffers.drawn = Int32Array(allocator, rows);
  return buffers;
}

Workspace LayOutWorkspace(const ShardPlan& plan, int rank, const ModelLimits& limits,
                          const BackendSizes& sizes, BumpAllocator& allocator) {
  Workspace workspace;
  workspace.rope = F32Matrix(allocator, limits.max_model_len, plan.config().head_dim);
  workspace.scratch = allocator.Next(
      sizes.WorkspaceBytes(StepLimitsOf(plan, rank, limits), HeadLayoutOf(plan, rank)));
  return workspace;
}

KvGeometry KvGeometryOf(const ShardPlan& plan, int rank, const ModelLimits& limits) {
  return KvGeometry{.num_layers = plan.config().num_hidden_layers,
                    .kv_heads = static_cast<int>(plan.rank(rank).kv_heads.size()),
                    .head_dim = plan.config().head_dim,
                    .block_tokens = limits.block_tokens,
                    .format = limits.kv_format};
}

HeadLayout HeadLayoutOf(const ShardPlan& plan, int rank) {
  const RankShard& shard = plan.rank(rank);
  return HeadLayout{.num_heads = static_cast<int>(shard.heads.size()),
                    .num_kv_heads = static_cast<int>(shard.kv_heads.size()),
                    .head_dim = plan.config().head_dim,
                    .head_to_kv = shard.head_to_kv.data()};
}

CommLimits CommLimitsOf(const ShardPlan& plan, const ModelLimits& limits) {
  const std::vector<int64_t> cols = plan.vocab_cols();
  CommLimits comm;
  comm.transport = limits.transport;
  comm.max_sum_elements = int64_t{limits.max_num_batched_tokens} * plan.config().hidden_size;
  comm.max_gather_elements = TileRows(limits) * *std::max_element(cols.begin(), cols.end());
  if (limits.transport != Transport::kShared) {  // devices, which draw from candidates
    comm.max_gather_elements =
        std::max(comm.max_gather_elements, limits.max_num_seqs * ListCols(plan));
  }
  return comm;
}

StepLimits StepLimitsOf(const ShardPlan& plan, int rank, const ModelLimits& limits) {
  const ModelConfig& config = plan.config();
  const RankShard& shard = plan.rank(rank);
  StepLimits step{limits.max_num_batched_tokens, limits.max_num_seqs, limits.max_model_len};
  step.max_inputs = std::max<int64_t>(
      {config.hidden_size, shard.heads.size() * config.head_dim, shard.mlp.size()});
  if (limits.activation == ActivationDType::kInt8) step.max_int8_inputs = step.max_inputs;
  step.quantized_weights = IsQuantized(limits.weights.layers) || IsQuantized(limits.weights.tables);
  return step;
}

int64_t StoredWeightBytes(const ShardPlan& plan, int rank, const WeightFormats& held_as) {
  int64_t bytes = 0;
  for (const WeightName& name : RequiredWeights(plan.config())) {
    const WeightSlice slice = SliceOf(name.kind, plan.config(), plan.rank(rank));
    const int64_t rows = slice.rows.size();
    const int64_t cols = slice.cols.size();
    const bool is_table = name.kind == WeightKind::kEmbedding || name.kind == WeightKind::kLmHead;
    const WeightFormat format = is_table ? held_as.tables : held_as.layers;
    if (!IsQuantized(format)) {
      bytes += rows * cols * WeightBits(format) / 8;
    } else if (IsVector(name.kind)) {
      bytes += rows * cols * 2;  // as files of this kind hold norms and biases
    } else {
      const int64_t group = is_table ? held_as.table_group_size : held_as.group_size;
      const int64_t groups = CeilDiv(cols, group);
      bytes += rows * cols * WeightBits(format) / 8 +
               rows * groups * (format == WeightFormat::kInt4 ? 3 : 2);
    }
  }
  return bytes;
}

RankNeeds FootprintOf(const ShardPlan& plan, int rank, const ModelLimits& limits,
                      const BackendSizes& sizes) {
  RankNeeds needs;
  const auto set = [&needs](MemoryCategory term, int64_t bytes) {
    needs.category_bytes[static_cast<int>(term)] = bytes;
  };
  BumpAllocator weights;
  LayOutWeights(plan.config(), plan.rank(rank), limits.weights, sizes, weights);
  set(MemoryCategory::kWeights, weights.used_bytes());
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
  needs.stored_weight_bytes = StoredWeightBytes(plan, rank, limits.weights);
  needs.kv_block_bytes = KvGeometryOf(plan, rank, limits).BlockBytes();
  BumpAllocator workspace;
  LayOutWorkspace(plan, rank, limits, sizes, workspace);
  set(MemoryCategory::kWorkspace, workspace.used_bytes() + needs.kv_block_bytes);
  return needs;
}

}  // namespace bulkhead
