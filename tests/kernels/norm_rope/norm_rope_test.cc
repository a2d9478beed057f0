#include <cmath>

#include "tests/kernels/op_test.h"

namespace bulkhead {
namespace {

using NormRopeTest = OpTest;

struct RopeCase {
  int num_heads;
  int num_kv_heads;
  int head_dim;
  bool has_norm;
};

TEST_P(NormRopeTest, NormRopeTurnsTheHeadsOfQAndKAndLeavesV) {
  for (const RopeCase& c :
       {RopeCase{8, 4, 16, true}, RopeCase{8, 4, 16, false}, RopeCase{14, 2, 64, false},
        RopeCase{1, 1, 8, true}, RopeCase{6, 3, 24, true}, RopeCase{2, 1, 10, true},
        RopeCase{3, 1, 2, false}, RopeCase{0, 0, 16, true}, RopeCase{4, 2, 128, true},
        RopeCase{5, 2, 96, false}}) {
    SCOPED_TRACE(testing::Message() << c.num_heads << "/" << c.num_kv_heads << " d " << c.head_dim);
    constexpr int kTokens = 9;
    constexpr int kModelLen = 50;
    const int64_t cols = int64_t{c.num_heads + 2 * c.num_kv_heads} * c.head_dim;
    const int64_t stride = cols + 7;
    const std::vector<float> x = RandomFloats(kTokens * stride, 7);
    const std::vector<float> q_norm = RandomFloats(c.head_dim, 8);
    const std::vector<float> k_norm = RandomFloats(c.head_dim, 9);
    std::vector<float> rope(kModelLen * c.head_dim);
    for (int p = 0; p < kModelLen; ++p) {
      for (int i = 0; i < c.head_dim / 2; ++i) {
        const double angle = p * std::pow(1e4, -2.0 * i / c.head_dim);
        rope[p * c.head_dim + i] = static_cast<float>(std::cos(angle));
        rope[p * c.head_dim + c.head_dim / 2 + i] = static_cast<float>(std::sin(angle));
      }
    }
    const int32_t position[kTokens] = {0, 1, 2, 49, 17, 3, 0, 31, 16};
    StepIndex index;
    index.num_tokens = kTokens;
    index.position = position;
    const HeadLayout heads{c.num_heads, c.num_kv_heads, c.head_dim, nullptr};
    const auto norm = [&](const std::vector<float>& weight) {
      return c.has_norm ? View(weight, 1, c.head_dim, c.head_dim) : ConstMatrixView();
    };
    Compare(kRopeTolerance, [&](Backend& backend) {
      std::vector<float> qkv = x;
      backend.NormRope(index, heads, norm(q_norm), norm(k_norm), 1e-6f,
                       View(rope, kModelLen, c.head_dim, c.head_dim),
                       View(qkv, kTokens, cols, stride));
      return qkv;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, NormRopeTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
