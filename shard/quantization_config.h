// Reads `quantization_config` of a config.json.
#pragma once

#include "shard/config_fields.h"
#include "shard/model_config.h"

namespace bulkhead {

// UNIMPLEMENTED naming the field for whatever else there is; kNone where there is no such field.
QuantizationConfig ReadQuantizationConfig(ConfigFields& fields);

// Parts of it.
inline constexpr int kMaxGroupSize = 1 << 20;
inline constexpr int kMaxHeldGroup = 128;  // inputs of a group in memory, at most
inline constexpr int kMxfp4Group = 32;
inline constexpr int kNvfp4Group = 16;
constexpr bool IsGroupSize(int inputs) {
  return inputs == 32 || inputs == 64 || inputs == kMaxHeldGroup;
}
// Fails if `fields` has a field that was not read: it may change what the numbers mean.
void RefuseUnknown(ConfigFields& fields);
// Sets fp8_kv by kv_cache_scheme or kv_cache_quant_algo; false where there is another one.
bool ReadKvCacheScheme(ConfigFields& fields, QuantizationConfig& config);
void ReadCompressedTensors(ConfigFields& fields, QuantizationConfig& config);
void ReadModelOpt(ConfigFields& fields, QuantizationConfig& config);

}  // namespace bulkhead
