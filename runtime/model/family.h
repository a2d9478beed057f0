// Family: a kind of decoder, declared in one file of runtime/model/families/: its config.json
// fields, tensors, buffers and forward pass. See README.md there.
#pragma once

#include <vector>

#include "shard/family_spec.h"
#include "shard/shard_plan.h"

namespace bulkhead {

class Decoder;  // runtime/model/decoder.h

// A layer's intermediate result, [T x rows_per_token, cols] in the activations arena.
struct BufferRow {
  int slot = 0;  // Decoder::Buffer(slot)
  int64_t cols = 0;
  // Only products read it: it has the backend's product_input_dtype; else f32.
  bool product_input = false;
  // Buffers of different stages are never live at the same time and share memory.
  int stage = 0;
  int rows_per_token = 1;  // > 1: one row per expert of a token
};

struct Family {
  FamilySpec spec;
  std::vector<BufferRow> (*buffers)(const RankShard& shard);
  // One layer: reads the residual stream by Norm, adds to it by AddSum.
  absl::Status (*forward)(Decoder& decoder);
  // Before the first layer: computes what all layers read; null: nothing. Collective.
  absl::Status (*begin)(Decoder& decoder) = nullptr;
};

// `text` served from a multimodal checkpoint: its config has a text_config of text's model_type;
// the rest are FamilySpec's fields.
Family TextPart(Family text, const char* architecture, const char* model_type, const char* prefix,
                const char* model_prefix, const char* not_served);

// All of runtime/model/families/, sorted by file name; valid for the life of the process.
const std::vector<Family>& Families();
// The argument of ReadModelConfig.
FamilySpecs AllFamilySpecs();
// The family of a config, which must be one of Families().
const Family& FamilyOf(const ModelConfig& config);

}  // namespace bulkhead
