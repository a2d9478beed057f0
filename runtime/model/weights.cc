#include "runtime/model/weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace bulkhead {
namespace {

LayerWeights LayOutSlots(const std::vector<TensorRow>& rows, const RankShard& shard,
                         const WeightFormats& held_as, const BackendSizes& sizes,
                         BumpAllocator& allocator) {
  LayerWeights weights;
  std::map<int, int> members;  // owner of the last part, by slot
  for (const TensorRow& row : rows) {
    if (row.optional) continue;
    Weight& weight = weights.At(row.slot);
    if (row.is_vector()) {
      const int64_t cols = weight.vector.cols() + SliceOf(row, shard).cols.size();
      weight.vector = ConstMatrixView(nullptr, DType::kF32, 1, cols);
      continue;
    }
    LinearShape shape = LinearShapeOf(row, shard, held_as);
    int& member = members.try_emplace(row.slot, -1).first->second;
    if (weight.parts.empty() || shape.groups.indexed > 0 || row.member() != member ||
        shape.format != weight.parts.back().shape.format) {
      weight.parts.push_back({std::move(shape), nullptr});
      member = row.member();
    } else {
      weight.parts.back().shape.rows += shape.rows;
    }
  }
  for (Weight& weight : weights.slots()) {
    for (Linear& part : weight.parts) part.packed = allocator.Next(sizes.PackedBytes(part.shape));
    const int64_t cols = weight.vector.cols();
    weight.vector = ConstMatrixView(allocator.Next(cols * DTypeBytes(DType::kF32)), DType::kF32,
                                    cols > 0 ? 1 : 0, cols);
  }
  return weights;
}

// `rows`: rows of one layer.
void LayOutAdapters(const RankShard& shard, const std::vector<TensorRow>& rows,
                    const WeightFormats& held_as, const BackendSizes& sizes,
                    BumpAllocator& allocator, ModelWeights& weights) {
  const std::vector<AdapterConfig>& adapters = shard.model->adapters;
  weights.adapters.resize(adapters.size());
  for (size_t a = 0; a < adapters.size(); ++a) {
    const LayerWeights laid_out =
        LayOutSlots(AdapterTensors(adapters[a], rows[0].layer), shard, held_as, sizes, allocator);
    const int adapter = static_cast<int>(a) + 1;
    int outer_slot = kOuterSlots;
    for (const AdapterModule& module : AdapterModules(adapters[a], shard, rows)) {
      std::vector<LowRank>& products = weights.layers.back().At(module.slot).low_rank;
      if (products.empty() || products.back().adapter != adapter) {
        products.push_back({adapter, laid_out[module.slot].parts[0], {}});
      }
      products.back().outer.push_back({module.first_output, module.first_inner, module.rank,
                                       adapters[a].ScaleOf(module.rank),
                                       laid_out[outer_slot++].parts[0]});
    }
    weights.adapters[a].push_back(laid_out);
  }
}

// Whether two rows are equal in all fields that the layout reads.
bool HeldAlike(const TensorRow& a, const TensorRow& b) {
  const auto read = [](const TensorRow& row) {
    return std::tie(row.expert, row.head, row.joins_heads, row.slot, row.held_as, row.rows,
                    row.cols, row.output_split, row.input_split, row.optional);
  };
  return read(a) == read(b);
}

// The loader's targets: which part of which arena each tensor fills.
class Targets {
 public:
  explicit Targets(Backend& backend) : backend_(backend) {}

  // Rows in the order of the layout.
  void Add(std::vector<TensorRow> rows, const RankShard& shard, const LayerWeights& weights) {
    std::map<int, int64_t> vector_ends;                     // by slot
    std::map<int, std::pair<size_t, int64_t>> matrix_ends;  // by slot: the part, its rows so far
    for (TensorRow& row : rows) {
      if (row.optional) continue;
      const TensorSlice slice = SliceOf(row, shard);
      const Weight& weight = weights[row.slot];
      Checkpoint::Target target;
      if (row.is_vector()) {
        if (weight.vector.empty()) continue;
        int64_t& end = vector_ends[row.slot];
        target.vector = ValuesOf(weight.vector).data() + end;
        end += slice.cols.size();
      } else {
        auto& [part, end] = matrix_ends[row.slot];
        if (end == weight.parts[part].shape.rows && part + 1 < weight.parts.size()) {
          ++part;
          end = 0;
        }
        target.sink = SinkOf(weight.parts[part]);
        target.sink_row = end;
        end += slice.rows.size();
      }
      target.row = std::move(row);
      list_.push_back(std::move(target));
    }
  }

  // Vectors are read on the host, and copied at the end.
  absl::Status CopyVectors() const {
    for (const auto& [data, values] : vectors_) {
      // We own the arena, which is not const; weights give out const views to all others.
      backend_.device().CopyFromHost(values.data(), const_cast<std::byte*>(data),
                                     static_cast<int64_t>(values.size() * sizeof(float)));
    }
    return backend_.device().Synchronize();
  }

  const std::vector<Checkpoint::Target>& list() const { return list_; }

 private:
  WeightSink* SinkOf(const Linear& linear) {
    auto& sink = sinks_[&linear];
    if (sink == nullptr) sink = backend_.Pack(linear);
    return sink.get();
  }
  std::vector<float>& ValuesOf(ConstMatrixView vector) {
    std::vector<float>& values = vectors_[vector.data()];
    values.resize(vector.cols());
    return values;
  }

  Backend& backend_;
  std::map<const Linear*, std::unique_ptr<WeightSink>> sinks_;
  std::map<const std::byte*, std::vector<float>> vectors_;  // by destination
  std::vector<Checkpoint::Target> list_;
};

}  // namespace

ModelWeights LayOutWeights(const RankShard& shard, const WeightFormats& held_as,
                           const BackendSizes& sizes, BumpAllocator& allocator) {
  const ModelConfig& config = *shard.model;
  ModelWeights weights;
  weights.model = LayOutSlots(ModelTensorsOf(shard), shard, held_as, sizes, allocator);
  if (config.tie_word_embeddings) {
    const Weight embedding = weights.model[kEmbedding];
    weights.model.At(kLmHead) = embedding;
  }
  for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer) {
    const std::vector<TensorRow> rows = LayerTensors(config, static_cast<int>(layer));
    weights.layers.push_back(LayOutSlots(rows, shard, held_as, sizes, allocator));
    LayOutAdapters(shard, rows, held_as, sizes, allocator, weights);
  }
  return weights;
}

int64_t MaxInputsOf(const std::vector<TensorRow>& rows, const RankShard& shard) {
  int64_t max_cols = 0;
  for (const TensorRow& row : rows) {
    if (!row.is_vector()) max_cols = std::max(max_cols, SliceOf(row, shard).cols.size());
  }
  return max_cols;
}

int64_t StoredWeightBytes(const RankShard& shard, const WeightFormats& held_as) {
  int64_t bytes = 0;
  for (const TensorRow& row : TensorsOf(shard)) bytes += StoredBytes(row, shard, held_as);
  return bytes;
}

int64_t AdapterBytes(const RankShard& shard, const WeightFormats& held_as,
                     const BackendSizes& sizes, const AdapterConfig& adapter) {
  BumpAllocator counted;
  for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer) {
    const auto& rows = AdapterTensors(adapter, static_cast<int>(layer));
    LayOutSlots(rows, shard, held_as, sizes, counted);
  }
  return counted.used_bytes();
}

std::vector<double> ReadWeightBytes(const RankShard& shard, const WeightFormats& held_as,
                                    absl::Span<const int> batches) {
  double always = 0;
  double of_experts = 0;  // over all of them
  for (const TensorRow& row : TensorsOf(shard)) {
    const bool is_looked_up =
        row.layer < 0 && (row.slot == kPerLayerEmbedding ||
                          (row.slot == kEmbedding && !shard.model->tie_word_embeddings));
    if (is_looked_up) continue;
    (row.expert >= 0 ? of_experts : always) +=
        static_cast<double>(StoredBytes(row, shard, held_as));
  }
  const MoeConfig& moe = shard.model->moe;
  std::vector<double> bytes;
  for (const int batch : batches) {
    double part = 0;  // share of the experts
    if (moe.num_experts > 0) {
      part = 1 - std::pow(1 - double{1} * moe.num_experts_per_tok / moe.num_experts, batch);
    }
    bytes.push_back(always + part * of_experts);
  }
  return bytes;
}

LayerKinds::LayerKinds(const ModelConfig& config) {
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    std::vector<TensorRow> rows = LayerTensors(config, layer);
    int kind = 0;
    while (kind < size() && !std::equal(rows.begin(), rows.end(), kinds_[kind].begin(),
                                        kinds_[kind].end(), HeldAlike)) {
      ++kind;
    }
    if (kind == size()) kinds_.push_back(std::move(rows));
    kind_of_layer_.push_back(kind);
  }
}

int64_t LayerKinds::CountIn(Range layers, int kind) const {
  const auto begin = kind_of_layer_.begin();
  return std::count(begin + layers.begin, begin + layers.end, kind);
}

WeightNeeds WeightNeedsOf(const RankShard& shard, const WeightFormats& held_as,
                          const BackendSizes& sizes, const LayerKinds& layers) {
  WeightNeeds needs;
  const auto add = [&](const std::vector<TensorRow>& rows, int64_t times) {
    if (times == 0) return;
    BumpAllocator arena;  // aligned parts of the whole one
    LayerWeights weights = LayOutSlots(rows, shard, held_as, sizes, arena);
    for (const Weight& weight : weights.slots()) {
      for (const Linear& part : weight.parts) {
        const int64_t bytes = sizes.PackingHostBytes(part.shape);
        needs.largest_host_bytes = std::max(needs.largest_host_bytes, bytes);
        needs.all_host_bytes += times * bytes;
      }
    }
    needs.arena_bytes += times * arena.used_bytes();
    needs.max_inputs = std::max(needs.max_inputs, MaxInputsOf(rows, shard));
    for (const TensorRow& row : rows) {
      if (!row.optional) needs.stored_bytes += times * StoredBytes(row, shard, held_as);
    }
  };
  add(ModelTensorsOf(shard), 1);
  for (int kind = 0; kind < layers.size(); ++kind) {
    add(layers.Rows(kind), layers.CountIn(shard.layers, kind));
  }
  for (const AdapterConfig& adapter : shard.model->adapters) {
    for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer) {
      add(AdapterTensors(adapter, static_cast<int>(layer)), 1);
    }
  }
  return needs;
}

WeightNeeds WeightNeedsOf(const RankShard& shard, const WeightFormats& held_as,
                          const BackendSizes& sizes) {
  return WeightNeedsOf(shard, held_as, sizes, LayerKinds(*shard.model));
}

absl::Status LoadWeights(const Checkpoint& checkpoint, const RankShard& shard,
                         const ModelWeights& weights, Backend& backend, int num_threads,
                         LoadProgress* progress, const std::function<bool()>& cancelled,
                         absl::Span<const std::shared_ptr<Checkpoint>> adapters) {
  const ModelConfig& model = *shard.model;
  BH_CHECK(adapters.size() == model.adapters.size());
  Targets targets(backend);
  std::vector<Targets> of_adapter;
  for (size_t a = 0; a < adapters.size(); ++a) of_adapter.emplace_back(backend);
  targets.Add(ModelTensorsOf(shard), shard, weights.model);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const auto layer = static_cast<int>(shard.layers.begin + static_cast<int64_t>(i));
    targets.Add(LayerTensors(model, layer), shard, weights.layers[i]);
    for (size_t a = 0; a < adapters.size(); ++a) {
      of_adapter[a].Add(AdapterTensors(model.adapters[a], layer), shard, weights.adapters[a][i]);
    }
  }
  int64_t total_bytes = checkpoint.BytesToRead(targets.list(), shard);
  for (size_t a = 0; a < adapters.size(); ++a) {
    total_bytes += adapters[a]->BytesToRead(of_adapter[a].list(), shard);
  }
  progress->total_bytes = total_bytes;
  BH_RETURN_IF_ERROR(
      checkpoint.Load(targets.list(), shard, num_threads, &progress->done_bytes, cancelled));
  for (size_t a = 0; a < adapters.size(); ++a) {
    BH_RETURN_IF_ERROR(adapters[a]->Load(of_adapter[a].list(), shard, num_threads,
                                         &progress->done_bytes, cancelled));
  }
  return targets.CopyVectors();
}

}  // namespace bulkhead
