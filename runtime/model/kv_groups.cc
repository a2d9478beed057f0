#include "runtime/model/kv_groups.h"

#include <algorithm>
#include <vector>

#include "base/arithmetic.h"

namespace bulkhead {
namespace {

// Every group adds block tables and entries in each step's plan.
constexpr int kMaxGroups = 8;

// Elements of a token's keys and values in a layer: roughly proportional to bytes on a rank.
int64_t Numbers(const ModelConfig& config, int layer) {
  return int64_t{config.KvHeadsOf(layer)} * config.HeadDimOf(layer);
}

// `layers` in `count` parts; a part has the same number of layers, the last one maybe fewer.
struct Parts {
  int64_t size = 0;
  int64_t most_numbers = 0;  // of a part
};

Parts PartsOf(const ModelConfig& config, const std::vector<int>& layers, int count) {
  const auto num_layers = static_cast<int64_t>(layers.size());
  Parts parts{.size = CeilDiv(num_layers, count)};
  for (int64_t begin = 0; begin < num_layers; begin += parts.size) {
    int64_t numbers = 0;
    for (int64_t i = begin; i < std::min(begin + parts.size, num_layers); ++i) {
      numbers += Numbers(config, layers[i]);
    }
    parts.most_numbers = std::max(parts.most_numbers, numbers);
  }
  return parts;
}

struct Division {
  int num_full = 1;  // groups
  int num_windowed = 0;
  int64_t numbers = 0;  // of a sequence of the full length
};

void Assign(const ModelConfig& config, const std::vector<int>& layers, int count, int window,
            Limits& limits) {
  const int64_t size = PartsOf(config, layers, count).size;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (static_cast<int64_t>(i) % size == 0) limits.kv_groups.push_back({.window = window});
    ++limits.kv_groups.back().num_layers;
    limits.kv_group_of_layer[layers[i]] = static_cast<int>(limits.kv_groups.size()) - 1;
  }
}

}  // namespace

void SetKvGroups(const ModelConfig& config, Limits& limits) {
  limits.kv_groups.clear();
  limits.kv_group_of_layer.clear();
  std::vector<int> full;
  std::vector<int> windowed;
  int window = 0;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.UsesDelta(layer) || !config.OwnsKv(layer)) continue;
    const int of_layer = std::max(config.WindowOf(layer), config.ChunkOf(layer));
    (of_layer > 0 ? windowed : full).push_back(layer);
    window = std::max(window, of_layer);
  }
  if (window == 0 || window >= limits.max_model_len) return;
  if (full.empty()) {
    const auto first = static_cast<int64_t>(CeilDiv(windowed.size(), kMaxGroups));
    full.assign(windowed.begin(), windowed.begin() + first);
    windowed.erase(windowed.begin(), windowed.begin() + first);
  }
  Division best;
  for (const auto* layers : {&full, &windowed}) {
    for (const int layer : *layers) best.numbers += Numbers(config, layer) * limits.max_model_len;
  }
  for (int num_full = 1; num_full < kMaxGroups; ++num_full) {
    for (int num_windowed = 1; num_full + num_windowed <= kMaxGroups; ++num_windowed) {
      const int64_t block = std::max(PartsOf(config, full, num_full).most_numbers,
                                     PartsOf(config, windowed, num_windowed).most_numbers);
      const int64_t numbers =
          block * (int64_t{num_full} * limits.max_model_len + int64_t{num_windowed} * window);
      if (numbers < best.numbers) best = {num_full, num_windowed, numbers};
    }
  }
  if (best.num_windowed == 0) return;
  limits.kv_group_of_layer.assign(config.num_hidden_layers, 0);
  Assign(config, full, best.num_full, 0, limits);
  Assign(config, windowed, best.num_windowed, window, limits);
}

}  // namespace bulkhead
