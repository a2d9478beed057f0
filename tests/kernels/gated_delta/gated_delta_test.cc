#include <cmath>

#include "tests/kernels/op_test.h"
#include "tests/kernels/state_step.h"

namespace bulkhead {
namespace {

struct Sizes {
  int key_heads;
  int value_heads;
  int key_dim;
  int value_dim;
};
std::ostream& operator<<(std::ostream& out, const Sizes& s) {
  return out << s.key_heads << "/" << s.value_heads << " heads of " << s.key_dim << ", "
             << s.value_dim;
}

// Sequences side by side, each step with as many tokens of each as it says.
struct Steps {
  std::vector<int> slots;
  std::vector<std::vector<int>> tokens;  // [steps][sequences]
};

class GatedDeltaTest : public OpTest {
 protected:
  // The outputs of each sequence, one after the other. A sequence's inputs depend on its number
  // alone. `decay`: of a_log.
  static std::vector<float> Run(Backend& backend, const Sizes& s, const Steps& steps,
                                float decay = -2.0F) {
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
        parts.push_back({steps.slots[i], done[i], counts[i]});
        for (int t = done[i]; t < done[i] + counts[i]; ++t) {
          const uint32_t seed = static_cast<uint32_t>(1000 * i) + t + 10;
          for (const float x : RandomFloats(cols, seed)) qkv.push_back(x);
          for (const float x : RandomFloats(2 * s.value_heads, seed + 77777)) ba.push_back(x);
        }
      }
      const SequenceStep step(parts);
      const int64_t rows = step.index().num_tokens;
      std::vector<float> out(rows * (out_cols + 3), 7.0F);
      backend.GatedDelta(step.index(),
                         {View(a_log, 1, s.value_heads, 0), View(dt_bias, 1, s.value_heads, 0),
                          View(norm, 1, s.value_dim, 0), 1e-6F},
                         View(qkv, rows, cols, cols),
                         View(ba, rows, 2 * s.value_heads, 2 * s.value_heads), rig.arena().Layer(0),
                         View(out, rows, out_cols, out_cols + 3));
      int64_t row = 0;
      for (size_t i = 0; i < counts.size(); ++i) {
        done[i] += counts[i];
        for (int t = 0; t < counts[i]; ++t, ++row) {
          const auto at = out.begin() + row * (out_cols + 3);
          outputs[i].insert(outputs[i].end(), at, at + out_cols);
          EXPECT_EQ(at[out_cols], 7.0F);
        }
      }
    }
    std::vector<float> all;
    for (const auto& of : outputs) all.insert(all.end(), of.begin(), of.end());
    return all;
  }
};

TEST_P(GatedDeltaTest, BlocksEqualTheRecurrence) {
  for (const Sizes& sizes : {Sizes{1, 1, 16, 16}, Sizes{2, 4, 16, 16}, Sizes{1, 3, 24, 40},
                             Sizes{2, 2, 33, 7}, Sizes{1, 2, 128, 128}}) {
    SCOPED_TRACE(testing::Message() << sizes);
    Compare(1e-4, [&](Backend& backend) {
      return Run(backend, sizes, {{1, 3}, {{70, 3}, {1, 60}, {1, 1}, {62, 1}, {9, 70}}});
    });
  }
}

TEST_P(GatedDeltaTest, DecaysFromNoneToAllGiveTheRecurrence) {
  for (const float a_log : {-30.0F, 0.0F, 3.0F, 40.0F}) {
    SCOPED_TRACE(a_log);
    Compare(1e-4, [&](Backend& backend) {
      return Run(backend, {1, 2, 16, 16}, {{0}, {{130}, {1}}}, a_log);
    });
  }
}

TEST_P(GatedDeltaTest, StepsOfAnySizeGiveTheSameBits) {
  const Sizes sizes{2, 4, 20, 24};
  const std::vector<float> whole = Run(*backend_, sizes, {{0}, {{200}}});
  for (const int size : {1, 7, 63, 64, 65}) {
    SCOPED_TRACE(size);
    Steps steps{{2}, {}};
    for (int done = 0; done < 200; done += size) {
      steps.tokens.push_back({std::min(size, 200 - done)});
    }
    ExpectSameBits(Run(*backend_, sizes, steps), whole);
  }
}

// Of two sequences in one step, and in another's slot, a sequence has the bits it has alone.
TEST_P(GatedDeltaTest, SequencesDoNotMix) {
  const Sizes sizes{2, 2, 16, 16};
  const std::vector<float> both =
      Run(*backend_, sizes, {{3, 0}, {{64, 1}, {1, 1}, {30, 90}, {40, 2}}});
  const std::vector<float> first = Run(*backend_, sizes, {{1}, {{135}}});
  ExpectSameBits({both.begin(), both.begin() + static_cast<int64_t>(first.size())}, first);
}

TEST_P(GatedDeltaTest, ANanStaysVisible) {
  const std::vector<float> out =
      Run(*backend_, {1, 1, 16, 16}, {{0}, {{3}}}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(out.back()));
}

INSTANTIATE_TEST_SUITE_P(Variants, GatedDeltaTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
