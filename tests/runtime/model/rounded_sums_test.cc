// Sums between hosts in bf16: logits near those of sums in f32, with the same bits in any batch and
// chunking, in the memory that was planned.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"
#include "tests/support/same_bits.h"

namespace bulkhead {
namespace {

// OLMo 2 also sums squares of heads over ranks, which stay f32.
class RoundedSumsOf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, RoundedSumsOf,
                         testing::Values("llama3_gqa_bf16", "olmo2_f32", "gemma2_bf16"));

TEST_P(RoundedSumsOf, AreNearTheOthersAndTheSameInAnyBatch) {
  const std::string dir = std::string(BH_TEST_DATA) + "/models/" + GetParam();
  const std::vector<std::vector<int32_t>> prompts = ReadGolden(dir).prompts;
  const RigOptions base{.decode_tokens = 4};
  const RigResult one = RunRig(dir, prompts, base);
  for (const std::vector<int>& nodes : {std::vector<int>{0, 1}, std::vector<int>{0, 0, 1, 1}}) {
    SCOPED_TRACE(nodes.size());
    RigOptions options = base;
    options.size = static_cast<int>(nodes.size());
    options.node_of_rank = nodes;
    ExpectSameBits(RunRig(dir, prompts, options), one);
    options.sum_dtype = DType::kBF16;
    const RigResult rounded = RunRig(dir, prompts, options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const double error = RelativeError(rounded.logits[i], one.logits[i]);
      EXPECT_LT(error, 2e-2) << "prompt " << i;
      EXPECT_GT(error, 1e-5) << "prompt " << i;
    }
    options.together = false;
    options.chunk_tokens = 7;
    ExpectSameBits(RunRig(dir, prompts, options), rounded);
  }
}

}  // namespace
}  // namespace bulkhead
