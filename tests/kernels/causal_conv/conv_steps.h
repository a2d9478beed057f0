// Runs CausalConv over a whole sequence, step by step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/kernels/op_test.h"
#include "tests/kernels/state_step.h"

namespace bulkhead {

// The rows of one sequence, cut into steps of these sizes, each with other inputs behind its own,
// `drafts` of them, which the next step has the positions of.
inline std::vector<float> RunConv(Backend& backend, int taps, int channels, int slot,
                                  const std::vector<int>& steps, int drafts = 0) {
  StateRig rig({.num_layers = 1,
                .num_slots = 3,
                .conv_taps = taps,
                .max_drafts = drafts,
                .heads = {.num_value_heads = 1, .value_dim = channels}});
  int tokens = 0;
  for (const int size : steps) tokens += size;
  const std::vector<float> weight = RandomFloats(int64_t{channels} * taps, 5);
  std::vector<float> x = RandomFloats(int64_t{tokens} * channels, 6);
  int position = 0;
  for (const int size : steps) {
    const SequenceStep step({{slot, position, size + drafts}});
    std::vector<float> rows(x.begin() + int64_t{position} * channels,
                            x.begin() + int64_t{position + size} * channels);
    const std::vector<float> rejected = RandomFloats(int64_t{drafts} * channels, 7 + position);
    rows.insert(rows.end(), rejected.begin(), rejected.end());
    backend.CausalConv(step.index(), View(weight, 1, int64_t{channels} * taps, 0),
                       rig.arena().Layer(0), View(rows, size + drafts, channels, channels));
    EXPECT_TRUE(backend.device().Synchronize().ok());
    std::copy_n(rows.begin(), int64_t{size} * channels, x.begin() + int64_t{position} * channels);
    position += size;
  }
  return x;
}

}  // namespace bulkhead
