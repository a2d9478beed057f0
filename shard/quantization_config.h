// Reads `quantization_config` of a config.json.
#pragma once

#include "shard/config_fields.h"
#include "shard/model_config.h"

namespace bulkhead {

// UNIMPLEMENTED naming the field for unsupported methods; kNone if there is no such field.
QuantizationConfig ReadQuantizationConfig(ConfigFields& fields);

// Shared with the readers of each method.
inline constexpr int kMaxGroupSize = 1 << 20;
inline constexpr int kMaxHeldGroup = 128;  // largest group in memory, in inputs
inline constexpr int kMxfp4Group = 32;
inline constexpr int kNvfp4Group = 16;
constexpr bool IsGroupSize(int inputs) {
  return inputs == 32 || inputs == 64 || inputs == kMaxHeldGroup;
}
// Fails if `fields` has a field that was not read: it could change the meaning of the codes.
void RefuseUnknown(ConfigFields& fields);
// Sets fp8_kv from kv_cache_scheme or kv_cache_quant_algo; false for other schemes.
bool ReadKvCacheScheme(ConfigFields& fields, QuantizationConfig& config);
void ReadCompressedTensors(ConfigFields& fields, QuantizationConfig& config);
void ReadModelOpt(ConfigFields& fields, QuantizationConfig& config);

}  // namespace bulkhead
