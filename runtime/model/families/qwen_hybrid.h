// Shared by Qwen's hybrids: linear attention in three layers of four, a gate after attention in the
// others, norms with 1 + w.
#pragma once

#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {

void ReadQwenHybrid(ConfigFields& fields, const SizeDefaults& sizes, ModelConfig& config);
// Experts in every layer, and a shared expert with a gate.
void ReadQwenHybridMoe(ConfigFields& fields, ModelConfig& config);
Family QwenHybrid(const char* architecture, const char* model_type,
                  void (*read_config)(ConfigFields& fields, ModelConfig& config));

Family qwen3_5();
Family qwen3_5_moe();

}  // namespace bulkhead::families
