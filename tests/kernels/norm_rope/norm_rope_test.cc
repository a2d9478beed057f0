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
  int rotary_dim = -1;  // all
  bool interleaved = false;
  bool norm_after_rotary = false;
  bool scales_q = false;
};

TEST_P(NormRopeTest, NormRopeTurnsTheHeadsOfQAndKAndLeavesV) {
  for (const RopeCase& c :
       {RopeCase{8, 4, 16, true}, RopeCase{8, 4, 16, false}, RopeCase{14, 2, 64, false},
        RopeCase{1, 1, 8, true}, RopeCase{6, 3, 24, true}, RopeCase{2, 1, 10, true},
        RopeCase{3, 1, 2, false}, RopeCase{0, 0, 16, true}, RopeCase{4, 2, 128, true},
        RopeCase{5, 2, 96, false}, RopeCase{4, 2, 24, false, 12}, RopeCase{4, 2, 80, true, 24},
        RopeCase{4, 2, 16, true, 0}, RopeCase{4, 2, 80, true, 80, true},
        RopeCase{4, 2, 64, false, 32, true}, RopeCase{4, 2, 48, true, 48, false, true},
        RopeCase{4, 2, 48, true, 20, true, true, true},
        RopeCase{2, 2, 16, false, 0, false, false, true}}) {
    SCOPED_TRACE(testing::Message() << c.num_heads << "/" << c.num_kv_heads << " d " << c.head_dim
                                    << " r " << c.rotary_dim);
    const int rotary_dim = c.rotary_dim < 0 ? c.head_dim : c.rotary_dim;
    constexpr int kTokens = 9;
    constexpr int kModelLen = 50;
    const int64_t cols = int64_t{c.num_heads + 2 * c.num_kv_heads} * c.head_dim;
    const int64_t stride = cols + 7;
    const std::vector<float> x = RandomFloats(kTokens * stride, 7);
    const std::vector<float> q_norm = RandomFloats(c.head_dim, 8);
    const std::vector<float> k_norm = RandomFloats(c.head_dim, 9);
    std::vector<float> rope(kModelLen * rotary_dim);
    for (int p = 0; p < kModelLen; ++p) {
      for (int i = 0; i < rotary_dim / 2; ++i) {
        const double angle = p * std::pow(1e4, -2.0 * i / rotary_dim);
        rope[p * rotary_dim + i] = static_cast<float>(std::cos(angle));
        rope[p * rotary_dim + rotary_dim / 2 + i] = static_cast<float>(std::sin(angle));
      }
    }
    const std::vector<float> q_scale = RandomFloats(kModelLen, 10);
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
      backend.NormRope(index, heads, {norm(q_norm), norm(k_norm), 1e-6f, c.norm_after_rotary},
                       {View(rope, kModelLen, rotary_dim, rotary_dim), c.interleaved,
                        c.scales_q ? View(q_scale, kModelLen, 1, 1) : ConstMatrixView()},
                       View(qkv, kTokens, cols, stride));
      return qkv;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, NormRopeTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
