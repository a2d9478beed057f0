#include "runtime/model/delta_layer.h"

namespace bulkhead::families {
namespace {

// After the slots of the rest of the layer (decoder_layer.cc, moe_layer.cc).
enum Weights { kQkv = 32, kZ, kBa, kConv, kDtBias, kALog, kNorm };
enum Buffers { kQkvOut = 24, kBaOut, kZAndOut, kGated };

// Heads of qkvz and ba: the layout per key head is in DeltaNames' comment.
void HeadTensors(const DeltaNames& names, const ModelConfig& c, TensorTable& t) {
  const GatedDeltaConfig& delta = c.delta;
  const int64_t group = delta.num_value_heads / delta.num_key_heads;
  const int64_t k = delta.key_dim;
  const int64_t v = delta.value_dim;
  const int64_t width = 2 * k + 2 * group * v;
  const auto add = [&](int slot, const char* name, int head, int64_t begin, int64_t rows,
                       int64_t of_key_head, Split split) {
    t.JoinedHead(slot, name, {head, begin, rows, delta.num_key_heads * of_key_head}, c.hidden_size,
                 split);
  };
  for (const int64_t begin : {int64_t{0}, k}) {
    for (int head = 0; head < delta.num_key_heads; ++head) {
      add(kQkv, names.qkvz, head, head * width + begin, k, width, Split::kEachDeltaKey);
    }
  }
  for (const auto& [slot, name, begin, rows, of_key_head] :
       {std::tuple{kQkv, names.qkvz, 2 * k, v, width},
        std::tuple{kZ, names.qkvz, 2 * k + group * v, v, width},
        std::tuple{kBa, names.ba, int64_t{0}, int64_t{1}, 2 * group},
        std::tuple{kBa, names.ba, group, int64_t{1}, 2 * group}}) {
    for (int head = 0; head < delta.num_value_heads; ++head) {
      add(slot, name, head, head / group * of_key_head + begin + head % group * rows, rows,
          of_key_head, Split::kEachDeltaValue);
    }
  }
}

}  // namespace

void DeltaTensors(const DeltaNames& names, const ModelConfig& c, TensorTable& t) {
  const GatedDeltaConfig& delta = c.delta;
  const int64_t keys = int64_t{delta.num_key_heads} * delta.key_dim;
  const int64_t values = int64_t{delta.num_value_heads} * delta.value_dim;
  const TensorTable::Part qkv[] = {
      {keys, Split::kDeltaKeys}, {keys, Split::kDeltaKeys}, {values, Split::kDeltaValues}};
  if (names.qkvz != nullptr) {
    HeadTensors(names, c, t);
  } else {
    t.FusedColumnParallel(kQkv, names.qkv, qkv, c.hidden_size, false);
    t.ColumnParallel(kZ, names.z, values, c.hidden_size, Split::kDeltaValues, false);
    for (const char* name : {names.b, names.a}) {
      t.ColumnParallel(kBa, name, delta.num_value_heads, c.hidden_size, Split::kDeltaValues, false);
    }
  }
  t.Convolution(kConv, "linear_attn.conv1d", qkv, delta.conv_taps);
  t.Vector(kDtBias, "linear_attn.dt_bias", delta.num_value_heads, Split::kDeltaValues);
  t.Vector(kALog, "linear_attn.A_log", delta.num_value_heads, Split::kDeltaValues);
  t.Norm(kNorm, "linear_attn.norm", delta.value_dim);
}

std::vector<BufferRow> DeltaBuffers(const RankShard& shard) {
  const GatedDeltaConfig& delta = shard.model->delta;
  const int64_t keys = shard.delta_keys.size() * delta.key_dim;
  const int64_t values = shard.delta_values.size() * delta.value_dim;
  constexpr int kStage = 4;  // used by no other half of a layer
  return {{.slot = kQkvOut, .cols = 2 * keys + values, .stage = kStage},
          {.slot = kBaOut, .cols = 2 * shard.delta_values.size(), .stage = kStage},
          {.slot = kZAndOut, .cols = 2 * values, .stage = kStage},
          {.slot = kGated, .cols = values, .product_input = true, .stage = kStage}};
}

MatrixView DeltaAttention(Decoder& d, ConstMatrixView x) {
  const LayerWeights& w = d.weights();
  const MatrixView gated = d.Buffer(kGated);
  const int64_t values = gated.cols();
  if (values == 0) return gated;
  const MatrixView qkv = d.Buffer(kQkvOut);
  const MatrixView ba = d.Buffer(kBaOut);
  const MatrixView both = d.Buffer(kZAndOut);
  d.MatMul(x, w[kQkv], qkv);
  d.MatMul(x, w[kZ], both.Cols(0, values));
  d.MatMul(x, w[kBa], ba);
  d.ops().CausalConv(d.index(), w[kConv].vector, d.state(), qkv);
  d.ops().Activate(Activation::kSilu, qkv, qkv);
  d.ops().GatedDelta(d.index(),
                     {w[kALog].vector, w[kDtBias].vector, w[kNorm].vector, d.config().rms_norm_eps},
                     qkv, ba, d.state(), both.Cols(values, values));
  d.ops().GatedActivation(Activation::kSilu, both, gated);
  return gated;
}

}  // namespace bulkhead::families
