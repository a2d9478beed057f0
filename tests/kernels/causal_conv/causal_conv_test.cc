#include "tests/kernels/op_test.h"
#include "tests/kernels/state_step.h"

namespace bulkhead {
namespace {

class CausalConvTest : public OpTest {
 protected:
  // The rows of one sequence of `tokens` inputs, cut into steps of these sizes.
  static std::vector<float> Run(Backend& backend, int taps, int channels, int slot,
                                const std::vector<int>& steps) {
    StateRig rig({.num_layers = 1,
                  .num_slots = 3,
                  .conv_taps = taps,
                  .heads = {.num_value_heads = 1, .value_dim = channels}});
    int tokens = 0;
    for (const int size : steps) tokens += size;
    const std::vector<float> weight = RandomFloats(int64_t{channels} * taps, 5);
    std::vector<float> x = RandomFloats(int64_t{tokens} * channels, 6);
    int position = 0;
    for (const int size : steps) {
      const SequenceStep step({{slot, position, size}});
      std::vector<float> rows(x.begin() + int64_t{position} * channels,
                              x.begin() + int64_t{position + size} * channels);
      backend.CausalConv(step.index(), View(weight, 1, int64_t{channels} * taps, 0),
                         rig.arena().Layer(0), View(rows, size, channels, channels));
      std::copy(rows.begin(), rows.end(), x.begin() + int64_t{position} * channels);
      position += size;
    }
    return x;
  }
};

TEST_P(CausalConvTest, IsASumOverTheLastInputs) {
  for (const int taps : {2, 3, 4, 16}) {
    for (const int channels : {1, 16, 31, 200}) {
      SCOPED_TRACE(testing::Message() << taps << " taps, " << channels << " channels");
      Compare(kNormTolerance, [&](Backend& backend) {
        return Run(backend, taps, channels, 1, {1, 5, 2, 20, 1});
      });
    }
  }
}

TEST_P(CausalConvTest, StepsOfAnySizeGiveTheSameBits) {
  const std::vector<float> whole = Run(*backend_, 4, 33, 0, {40});
  for (const std::vector<int>& steps :
       {std::vector<int>(40, 1), {7, 7, 7, 7, 7, 5}, {1, 39}, {3, 1, 36}}) {
    ExpectSameBits(Run(*backend_, 4, 33, 2, steps), whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, CausalConvTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
