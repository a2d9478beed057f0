// What Qwen's hybrids share: linear attention in three layers of four, a gate after the attention
// of the others, norms of 1 + w.
#pragma once

#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {

void ReadQwenHybrid(ConfigFields& fields, const SizeDefaults& sizes, ModelConfig& config);
// Experts in every layer, and a shared one behind a gate.
void ReadQwenHybridMoe(ConfigFields& fields, ModelConfig& config);
Family QwenHybrid(const char* architecture, const char* model_type,
                  void (*read_config)(ConfigFields& fields, ModelConfig& config));

Family qwen3_5();
Family qwen3_5_moe();

}  // namespace bulkhead::families
