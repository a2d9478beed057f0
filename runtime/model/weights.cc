#include "runtime/model/weights.h"

#include <initializer_list>
#include <memory>

#include "base/status.h"

namespace bulkhead {
namespace {

class Layout {
 public:
  Layout(const ModelConfig& config, const RankShard& shard, const WeightFormats& held_as,
         const BackendSizes& sizes, BumpAllocator& allocator)
      : config_(config), shard_(shard), held_as_(held_as), sizes_(sizes), allocator_(allocator) {}

  Linear Matrix(LinearKind kind) {
    Linear linear{LinearShapeOf(kind, config_, shard_, held_as_), nullptr};
    linear.packed = allocator_.Next(sizes_.PackedBytes(linear.shape));
    return linear;
  }
  // Of weights that lie one after the other; apart where each has an index of its own.
  std::vector<Linear> Fused(LinearKind kind, std::initializer_list<WeightKind> weights) {
    if (!held_as_.act_order) return {Matrix(kind)};
    std::vector<Linear> parts;
    for (const WeightKind weight : weights) {
      LinearShape shape = LinearShapeOf(kind, config_, shard_, held_as_);
      shape.rows = SliceOf(weight, config_, shard_).rows.size();
      parts.push_back({shape, allocator_.Next(sizes_.PackedBytes(shape))});
    }
    return parts;
  }
  ConstMatrixView Vector(int64_t cols) {
    return ConstMatrixView(allocator_.Next(cols * DTypeBytes(DType::kF32)), DType::kF32, 1, cols);
  }
  ConstMatrixView VectorIf(bool present, int64_t cols) { return Vector(present ? cols : 0); }

  LayerWeights Layer() {
    const int64_t d = config_.head_dim;
    LayerWeights layer;
    layer.input_norm = Vector(config_.hidden_size);
    layer.qkv = Fused(LinearKind::kQkv, {WeightKind::kQ, WeightKind::kK, WeightKind::kV});
    layer.qkv_bias =
        VectorIf(config_.qkv_bias, LinearShapeOf(LinearKind::kQkv, config_, shard_, held_as_).rows);
    layer.q_norm = VectorIf(config_.qk_norm, d);
    layer.k_norm = VectorIf(config_.qk_norm, d);
    layer.o = Matrix(LinearKind::kO);
    layer.o_bias = VectorIf(config_.o_bias, config_.hidden_size);
    layer.mlp_norm = Vector(config_.hidden_size);
    layer.gate_up = Fused(LinearKind::kGateUp, {WeightKind::kGate, WeightKind::kUp});
    layer.gate_up_bias = VectorIf(
        config_.mlp_bias, LinearShapeOf(LinearKind::kGateUp, config_, shard_, held_as_).rows);
    layer.down = Matrix(LinearKind::kDown);
    layer.down_bias = VectorIf(config_.mlp_bias, config_.hidden_size);
    return layer;
  }

 private:
  const ModelConfig& config_;
  const RankShard& shard_;
  const WeightFormats& held_as_;
  const BackendSizes& sizes_;
  BumpAllocator& allocator_;
};

// The loader's targets: which part of which arena each named weight fills.
class Targets {
 public:
  Targets(const ModelConfig& config, const RankShard& shard, Backend& backend)
      : config_(config), shard_(shard), backend_(backend) {}

  // The weights of `kinds` lie one after the other in `linear`.
  void Matrices(const Linear& linear, int layer, std::initializer_list<WeightKind> kinds) {
    sinks_.push_back(backend_.Pack(linear));
    for (const WeightKind kind : kinds) {
      list_.push_back({.name = {kind, layer},
                       .sink = sinks_.back().get(),
                       .sink_row = FusedRowOf(kind, config_, shard_),
                       .vector = nullptr});
    }
  }
  void Fused(const std::vector<Linear>& parts, int layer, std::initializer_list<WeightKind> kinds) {
    if (parts.size() == 1) return Matrices(parts[0], layer, kinds);
    const WeightKind* kind = kinds.begin();
    for (const Linear& part : parts) {
      Matrices(part, layer, {*kind++});
      list_.back().sink_row = 0;
    }
  }
  // Read on the host, and copied at the end.
  void Vectors(ConstMatrixView view, int layer, std::initializer_list<WeightKind> kinds) {
    if (view.empty()) return;
    vectors_.push_back({view, std::vector<float>(view.cols())});
    for (const WeightKind kind : kinds) {
      float* vector = vectors_.back().values.data() + FusedRowOf(kind, config_, shard_);
      list_.push_back({.name = {kind, layer}, .sink = nullptr, .sink_row = 0, .vector = vector});
    }
  }
  absl::Status CopyVectors() const {
    for (const Vector& vector : vectors_) {
      // The arena is ours and not const; weights hand out const views to everyone else.
      backend_.device().CopyFromHost(vector.values.data(),
                                     const_cast<std::byte*>(vector.view.data()),
                                     vector.view.cols() * static_cast<int64_t>(sizeof(float)));
    }
    return backend_.device().Synchronize();
  }

  void Layer(int i, const LayerWeights& w) {
    Fused(w.qkv, i, {WeightKind::kQ, WeightKind::kK, WeightKind::kV});
    Vectors(w.qkv_bias, i, {WeightKind::kQBias, WeightKind::kKBias, WeightKind::kVBias});
    Matrices(w.o, i, {WeightKind::kO});
    Vectors(w.o_bias, i, {WeightKind::kOBias});
    Fused(w.gate_up, i, {WeightKind::kGate, WeightKind::kUp});
    Vectors(w.gate_up_bias, i, {WeightKind::kGateBias, WeightKind::kUpBias});
    Matrices(w.down, i, {WeightKind::kDown});
    Vectors(w.down_bias, i, {WeightKind::kDownBias});
    Vectors(w.input_norm, i, {WeightKind::kInputNorm});
    Vectors(w.mlp_norm, i, {WeightKind::kPostAttentionNorm});
    Vectors(w.q_norm, i, {WeightKind::kQNorm});
    Vectors(w.k_norm, i, {WeightKind::kKNorm});
  }

  const std::vector<Checkpoint::Target>& list() const { return list_; }

 private:
  struct Vector {
    ConstMatrixView view;  // [1, n], where it belongs
    std::vector<float> values;
  };

  const ModelConfig& config_;
  const RankShard& shard_;
  Backend& backend_;
  std::vector<std::unique_ptr<WeightSink>> sinks_;
  std::vector<Vector> vectors_;
  std::vector<Checkpoint::Target> list_;
};

}  // namespace

ModelWeights LayOutWeights(const ModelConfig& config, const RankShard& shard,
                           const WeightFormats& held_as, const BackendSizes& sizes,
                           BumpAllocator& allocator) {
  Layout layout(config, shard, held_as, sizes, allocator);
  ModelWeights weights;
  weights.embedding = layout.Matrix(LinearKind::kEmbedding);
  weights.lm_head =
      config.tie_word_embeddings ? weights.embedding : layout.Matrix(LinearKind::kLmHead);
  weights.final_norm = layout.Vector(config.hidden_size);
  for (int i = 0; i < config.num_hidden_layers; ++i) weights.layers.push_back(layout.Layer());
  return weights;
}

absl::Status LoadWeights(const Checkpoint& checkpoint, const ModelConfig& config,
                         const RankShard& shard, const ModelWeights& weights, Backend& backend,
                         int num_threads, LoadProgress* progress,
                         const std::function<bool()>& cancelled) {
  Targets targets(config, shard, backend);
  targets.Matrices(weights.embedding, -1, {WeightKind::kEmbedding});
  if (!config.tie_word_embeddings) targets.Matrices(weights.lm_head, -1, {WeightKind::kLmHead});
  targets.Vectors(weights.final_norm, -1, {WeightKind::kFinalNorm});
  for (int i = 0; i < config.num_hidden_layers; ++i) targets.Layer(i, weights.layers[i]);
  progress->total_bytes = checkpoint.BytesToRead(targets.list(), shard);
  BH_RETURN_IF_ERROR(
      checkpoint.Load(targets.list(), shard, num_threads, &progress->done_bytes, cancelled));
  return targets.CopyVectors();
}

}  // namespace bulkhead
