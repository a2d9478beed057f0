#include "runtime/model/weights.h"

#include <memory>

namespace bulkhead {
namespace {

class Layout {
 public:
  Layout(const ModelConfig& config, const RankShard& shard, DType held_as, const Backend& backend,
         Carver& carver)
      : config_(config), shard_(shard), held_as_(held_as), backend_(backend), carver_(carver) {}

  Linear Matrix(LinearKind kind) {
    Linear linear{LinearShapeOf(kind, config_, shard_, held_as_), nullptr};
    linear.packed = carver_.Next(backend_.PackedBytes(linear.shape));
    return linear;
  }
  ConstMatrixView Vector(int64_t cols) {
    return ConstMatrixView(carver_.Next(cols * DTypeBytes(DType::kF32)), DType::kF32, 1, cols);
  }
  ConstMatrixView VectorIf(bool present, int64_t cols) { return Vector(present ? cols : 0); }

  LayerWeights Layer() {
    const int64_t d = config_.head_dim;
    LayerWeights layer;
    layer.input_norm = Vector(config_.hidden_size);
    layer.qkv = Matrix(LinearKind::kQkv);
    layer.qkv_bias = VectorIf(config_.qkv_bias, layer.qkv.shape.rows);
    layer.q_norm = VectorIf(config_.qk_norm, d);
    layer.k_norm = VectorIf(config_.qk_norm, d);
    layer.o = Matrix(LinearKind::kO);
    layer.o_bias = VectorIf(config_.o_bias, config_.hidden_size);
    layer.mlp_norm = Vector(config_.hidden_size);
    layer.gate_up = Matrix(LinearKind::kGateUp);
    layer.gate_up_bias = VectorIf(config_.mlp_bias, layer.gate_up.shape.rows);
    layer.down = Matrix(LinearKind::kDown);
    layer.down_bias = VectorIf(config_.mlp_bias, config_.hidden_size);
    return layer;
  }

 private:
  const ModelConfig& config_;
  const RankShard& shard_;
  DType held_as_;
  const Backend& backend_;
  Carver& carver_;
};

// The loader's targets: which part of which arena each named weight fills.
class Targets {
 public:
  Targets(const ModelConfig& config, const RankShard& shard, Backend& backend)
      : d_(config.head_dim), h_(shard.heads.size()), k_(shard.kv_heads.size()), backend_(backend) {}

  void Matrix(WeightKind kind, int layer, WeightSink* sink, int64_t row) {
    list_.push_back({.name = {kind, layer}, .sink = sink, .sink_row = row, .vector = nullptr});
  }
  void Vector(WeightKind kind, int layer, ConstMatrixView view, int64_t at = 0) {
    if (view.empty()) return;
    // The arena is ours and not const; weights hand out const views to everyone else.
    float* vector = const_cast<float*>(view.F32()) + at;
    list_.push_back({.name = {kind, layer}, .sink = nullptr, .sink_row = 0, .vector = vector});
  }
  WeightSink* Sink(const Linear& linear) {
    sinks_.push_back(backend_.Pack(linear));
    return sinks_.back().get();
  }

  void Layer(int i, const LayerWeights& w) {
    WeightSink* qkv = Sink(w.qkv);
    Matrix(WeightKind::kQ, i, qkv, 0);
    Matrix(WeightKind::kK, i, qkv, h_ * d_);
    Matrix(WeightKind::kV, i, qkv, (h_ + k_) * d_);
    Vector(WeightKind::kQBias, i, w.qkv_bias, 0);
    Vector(WeightKind::kKBias, i, w.qkv_bias, h_ * d_);
    Vector(WeightKind::kVBias, i, w.qkv_bias, (h_ + k_) * d_);
    Matrix(WeightKind::kO, i, Sink(w.o), 0);
    Vector(WeightKind::kOBias, i, w.o_bias);
    WeightSink* gate_up = Sink(w.gate_up);
    const int64_t f = w.gate_up.shape.rows / 2;
    Matrix(WeightKind::kGate, i, gate_up, 0);
    Matrix(WeightKind::kUp, i, gate_up, f);
    Vector(WeightKind::kGateBias, i, w.gate_up_bias, 0);
    Vector(WeightKind::kUpBias, i, w.gate_up_bias, f);
    Matrix(WeightKind::kDown, i, Sink(w.down), 0);
    Vector(WeightKind::kDownBias, i, w.down_bias);
    Vector(WeightKind::kInputNorm, i, w.input_norm);
    Vector(WeightKind::kPostAttentionNorm, i, w.mlp_norm);
    Vector(WeightKind::kQNorm, i, w.q_norm);
    Vector(WeightKind::kKNorm, i, w.k_norm);
  }

  const std::vector<Checkpoint::Target>& list() const { return list_; }

 private:
  int64_t d_;
  int64_t h_;
  int64_t k_;
  Backend& backend_;
  std::vector<std::unique_ptr<WeightSink>> sinks_;
  std::vector<Checkpoint::Target> list_;
};

}  // namespace

ModelWeights LayOutWeights(const ModelConfig& config, const RankShard& shard, DType held_as,
                           const Backend& backend, Carver& carver) {
  Layout layout(config, shard, held_as, backend, carver);
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
  targets.Matrix(WeightKind::kEmbedding, -1, targets.Sink(weights.embedding), 0);
  if (!config.tie_word_embeddings) {
    targets.Matrix(WeightKind::kLmHead, -1, targets.Sink(weights.lm_head), 0);
  }
  targets.Vector(WeightKind::kFinalNorm, -1, weights.final_norm);
  for (int i = 0; i < config.num_hidden_layers; ++i) targets.Layer(i, weights.layers[i]);
  progress->total_bytes = checkpoint.BytesToRead(targets.list(), shard);
  return checkpoint.Load(targets.list(), shard, num_threads, &progress->done_bytes, cancelled);
}

}  // namespace bulkhead
