// Family: a kind of decoder, declared whole in one file of runtime/model/families/: its fields of
// config.json, its tensors, its buffers and its forward pass. README.md there says how.
#pragma once

#include <vector>

#include "shard/family_spec.h"
#include "shard/shard_plan.h"

namespace bulkhead {

class Decoder;  // runtime/model/decoder.h

// What a layer computes between products, [T x rows_per_token, cols] in the activations arena.
struct BufferRow {
  int slot = 0;  // where the forward pass finds it
  int64_t cols = 0;
  // Products alone read it: in the backend's product_input_dtype; else f32.
  bool product_input = false;
  // Buffers of different stages never live at the same time, and share memory.
  int stage = 0;
  int rows_per_token = 1;  // of a mixture of experts, whose tokens are several experts' inputs
};

struct Family {
  FamilySpec spec;
  std::vector<BufferRow> (*buffers)(const RankShard& shard);
  // One layer: reads the residual stream by Norm, adds to it by AddSum.
  absl::Status (*forward)(Decoder& decoder);
  // Before the first layer, where there is something that all of them read. Collective.
  absl::Status (*begin)(Decoder& decoder) = nullptr;
};

// `text`, served from a multimodal checkpoint: a config with a text_config of its model_type, and
// FamilySpec's prefixes and not_served.
Family TextPart(Family text, const char* architecture, const char* model_type, const char* prefix,
                const char* model_prefix, const char* not_served);

// All of runtime/model/families/, by file name; for the life of the process.
const std::vector<Family>& Families();
// What ReadModelConfig takes.
FamilySpecs AllFamilySpecs();
// The family of a config, which must be one of Families().
const Family& FamilyOf(const ModelConfig& config);

}  // namespace bulkhead
