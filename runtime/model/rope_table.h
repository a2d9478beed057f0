// The rotary embedding's cosines and sines, by absolute position, with the same bits on every
// x86-64 machine: plain double arithmetic of our own, since libm chooses its code by the CPU.
#pragma once

#include <vector>

#include "memory/matrix.h"
#include "shard/model_config.h"

namespace bulkhead {

// Inverse frequencies [d / 2], scaled as config.json says. Source of the llama3 rule: the published
// Llama 3.1 configuration (factor, low and high frequency factors over the original length).
std::vector<float> RopeInverseFrequencies(const RopeConfig& rope, int head_dim);

// rows [n, d] f32, in host memory: the table's rows from `first_position` on. Row p of the table
// holds d/2 cosines, then d/2 sines of p x inverse frequency.
void FillRopeRows(const RopeConfig& rope, int head_dim, int64_t first_position, MatrixView rows);

}  // namespace bulkhead
