// The rotary embedding's cosines and sines, by absolute position, with the same bits on every
// x86-64 machine: our own double arithmetic, because libm selects its code by CPU.
#pragma once

#include <vector>

#include "memory/matrix.h"
#include "shard/model_config.h"

namespace bulkhead {

// Inverse frequencies [r / 2], scaled as config.json says. Sources: the published Llama 3.1
// configuration; "YaRN" (arXiv 2309.00071) and "LongRoPE" (arXiv 2402.13753) as computed by
// transformers' modeling_rope_utils.py. longrope uses its long factors for all positions if
// max_model_len exceeds the original context.
std::vector<float> RopeInverseFrequencies(const RopeConfig& rope, int rotary_dim,
                                          int max_model_len);

// rows [n, r] f32, in host memory: the table's rows from `first_position` on. Row p of the table
// holds r/2 cosines, then r/2 sines of p x inverse frequency, times the attention factor.
void FillRopeRows(const RopeConfig& rope, int max_model_len, int64_t first_position,
                  MatrixView rows);

// rows [n, 1] f32: q's factor by position (ModelConfig::q_scale_beta).
void FillQScale(const ModelConfig& config, int64_t first_position, MatrixView rows);

}  // namespace bulkhead
