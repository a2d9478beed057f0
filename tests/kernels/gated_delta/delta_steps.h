// Runs GatedDelta over whole sequences, step by step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <vector>

#include "tests/kernels/op_test.h"
#include "tests/kernels/state_step.h"

namespace bulkhead {

struct DeltaSizes {
  int key_heads;
  int value_heads;
  int key_dim;
  int value_dim;
};
inline std::ostream& operator<<(std::ostream& out, const DeltaSizes& s) {
  return out << s.key_heads << "/" << s.value_heads << " heads of " << s.key_dim << ", "
             << s.value_dim;
}

// Sequences side by side, each step with as many tokens of each as it says.
struct DeltaSteps {
  std::vector<int> slots;
  std::vector<std::vector<int>> tokens;  // [steps][sequences]
  // Behind those of each sequence as many of other inputs, which the next step has the positions
  // of: no last one of a block.
  int drafts = 0;
};

// The outputs of each sequence, one after the other. A sequence's inputs depend on its number
// alone. `decay`: of a_log.
inline std::vector<float> RunDelta(Backend& backend, const DeltaSizes& s, const DeltaSteps& steps,
                                   float decay = -2.0F) {
  constexpr int64_t kGap = 4;  // between rows of the output
  std::vector<int32_t> map;
  for (int head = 0; head < s.value_heads; ++head) {
    map.push_back(head * s.key_heads / s.value_heads);
  }
  const StateGeometry geometry{
      .num_layers = 1,
      .num_slots = 4,
      .conv_taps = 2,
      .heads = {s.key_heads, s.value_heads, s.key_dim, s.value_dim, map.data()}};
  StateRig rig(geometry);
  const DeltaHeads& heads = geometry.heads;
  const StepLimits limits{.delta_key_dim = s.key_dim, .delta_value_dim = s.value_dim};
  const HeadLayout no_heads;
  std::vector<std::byte> workspace(backend.WorkspaceBytes(limits, no_heads) + 64);
  void* begin = workspace.data();
  size_t left = workspace.size();
  std::align(64, left - 64, begin, left);
  backend.SetWorkspace(static_cast<std::byte*>(begin), limits, no_heads);
  const int64_t cols = heads.qkv_dim();
  const int64_t out_cols = heads.out_dim();
  std::vector<float> a_log(s.value_heads, decay);
  const std::vector<float> dt_bias = RandomFloats(s.value_heads, 1);
  const std::vector<float> norm = RandomFloats(s.value_dim, 2);
  std::vector<int> done(steps.slots.size());
  std::vector<std::vector<float>> outputs(steps.slots.size());
  for (const std::vector<int>& counts : steps.tokens) {
    std::vector<SequencePart> parts;
    std::vector<float> qkv, ba;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) continue;
      const int end = done[i] + counts[i];
      const int drafts = std::min(steps.drafts, kStateBlock - 1 - end % kStateBlock);
      parts.push_back({steps.slots[i], done[i], counts[i] + drafts});
      for (int t = done[i]; t < end + drafts; ++t) {
        const uint32_t seed = static_cast<uint32_t>(1000 * i) + t + (t < end ? 10 : 555 + end);
        for (const float x : RandomFloats(cols, seed)) qkv.push_back(x);
        for (const float x : RandomFloats(2 * s.value_heads, seed + 77777)) ba.push_back(x);
      }
    }
    const SequenceStep step(parts);
    const int64_t rows = step.index().num_tokens;
    std::vector<float> out(rows * (out_cols + kGap), 7.0F);
    backend.GatedDelta(step.index(),
                       {View(a_log, 1, s.value_heads, 0), View(dt_bias, 1, s.value_heads, 0),
                        View(norm, 1, s.value_dim, 0), 1e-6F},
                       View(qkv, rows, cols, cols),
                       View(ba, rows, 2 * s.value_heads, 2 * s.value_heads), rig.arena().Layer(0),
                       View(out, rows, out_cols, out_cols + kGap));
    EXPECT_TRUE(backend.device().Synchronize().ok());
    int64_t row = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) continue;
      done[i] += counts[i];
      for (int t = 0; t < counts[i]; ++t, ++row) {
        const auto at = out.begin() + row * (out_cols + kGap);
        outputs[i].insert(outputs[i].end(), at, at + out_cols);
        EXPECT_EQ(at[out_cols], 7.0F);
      }
      row += std::min(steps.drafts, kStateBlock - 1 - done[i] % kStateBlock);
    }
  }
  std::vector<float> all;
  for (const auto& of : outputs) all.insert(all.end(), of.begin(), of.end());
  return all;
}

}  // namespace bulkhead
