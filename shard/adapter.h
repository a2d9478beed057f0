// AdapterConfig: a LoRA adapter as PEFT saves it, adapter_config.json and
// adapter_model.safetensors. A module's product becomes W x + scale B (A x). Its matrices are rows
// like the model's, so that a rank's part of them, their bytes and their loading follow from the
// module's own row.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace bulkhead {

struct ModelConfig;
struct RankShard;
struct TensorRow;

inline constexpr int kMaxAdapterRank = 512;
inline constexpr int64_t kMaxAdapterConfigBytes = int64_t{1} << 20;

// Largest numbers of outputs, over all ranks, of a layer's A matrices with one input, and of a B.
struct LowRankShape {
  int64_t inner = 0;
  int64_t outputs = 0;
};

struct AdapterConfig {
  std::string name;  // in requests
  std::string dir;
  double alpha = 0;
  bool rank_stabilized = false;     // scaled by alpha / sqrt(LoRA rank), not alpha / LoRA rank
  std::map<std::string, int> rank;  // LoRA rank by module: "layers.3.self_attn.q_proj"

  LowRankShape most;
  // The rows of each layer of the model, by AdapterTensors.
  std::shared_ptr<const std::vector<std::vector<TensorRow>>> tensors;
  std::vector<std::string> unknown_fields;  // of adapter_config.json

  float ScaleOf(int module_rank) const;
};

// Whether an adapter may change the module's product: Decoder::MatMul, MatMulGated or AddSum of a
// token, or AddExpertsSum of the shared expert. Products of routed experts and of single heads
// (MLA) are not adaptable.
bool IsAdaptable(const TensorRow& row);
// The adaptable rows of all layers; computing them is slow, so compute them once.
std::vector<std::vector<TensorRow>> AdaptableRows(const ModelConfig& model);

// Reads the folder's config and the headers of its tensors, of an adapter for `model`, which has
// these AdaptableRows. Failures carry exit code 3: NOT_FOUND, INVALID_ARGUMENT, or UNIMPLEMENTED
// for anything but a LoRA of linear layers of attention and MLP, naming file, field or tensor.
absl::StatusOr<AdapterConfig> ReadAdapter(const std::string& name, const std::string& dir,
                                          const ModelConfig& model,
                                          absl::Span<const std::vector<TensorRow>> layers);

// The maximum of each size over all adapters.
LowRankShape MostOf(absl::Span<const AdapterConfig> adapters);

// The adapter's matrices in a layer: for each module its A, [r, inputs], in the module's own slot
// (modules of a slot read the same inputs), and its B, [outputs, r], in a slot from kOuterSlots on.
// A is split as the module's inputs are, B as its outputs.
inline constexpr int kOuterSlots = 64;
const std::vector<TensorRow>& AdapterTensors(const AdapterConfig& adapter, int layer);

// The modules that the adapter changes, in the order of their B slots.
struct AdapterModule {
  int slot = 0;
  int64_t first_output = 0;  // in the slot, on this rank
  int64_t first_inner = 0;   // in the outputs of the slot's As
  int rank = 0;
};
// `rows`: LayerTensors of the layer.
std::vector<AdapterModule> AdapterModules(const AdapterConfig& adapter, const RankShard& shard,
                                          absl::Span<const TensorRow> rows);

}  // namespace bulkhead
