#include <algorithm>
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
  bool of_all_heads = false;
  bool without_weight = false;
  bool of_halves = false;
  bool values = false;
};

constexpr RopeCase kCases[] = {
    RopeCase{8, 4, 16, true},
    RopeCase{8, 4, 16, false},
    RopeCase{14, 2, 64, false},
    RopeCase{1, 1, 8, true},
    RopeCase{6, 3, 24, true},
    RopeCase{2, 1, 10, true},
    RopeCase{3, 1, 2, false},
    RopeCase{0, 0, 16, true},
    RopeCase{4, 2, 128, true},
    RopeCase{5, 2, 96, false},
    RopeCase{4, 2, 24, false, 12},
    RopeCase{4, 2, 80, true, 24},
    RopeCase{4, 2, 16, true, 0},
    RopeCase{4, 2, 80, true, 80, true},
    RopeCase{4, 2, 64, false, 32, true},
    RopeCase{4, 2, 48, true, 48, false, true},
    RopeCase{4, 2, 48, true, 20, true, true, true},
    RopeCase{2, 2, 16, false, 0, false, false, true},
    RopeCase{6, 2, 16, true, 16, false, false, false, true},
    RopeCase{3, 1, 10, true, 10, true, true, true, true},
    RopeCase{0, 0, 16, true, 16, false, false, false, true},
    RopeCase{4, 2, 24, false, 24, true, true, false, false, true},
    RopeCase{4, 2, 48, true, 12, false, false, false, false, false, true, true},
    RopeCase{3, 1, 128, true, 34, false, true, false, false, false, true},
    RopeCase{2, 3, 10, false, 10, false, false, false, false, false, false, true},
    RopeCase{3, 0, 16, true, 16, false, false, false, false, false, false, true}};

TEST_P(NormRopeTest, NormRopeTurnsTheHeadsOfQAndKAndNoneOfV) {
  for (const RopeCase& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.num_heads << "/" << c.num_kv_heads << " d " << c.head_dim
                                    << " r " << c.rotary_dim);
    const int rotary_dim = c.rotary_dim < 0 ? c.head_dim : c.rotary_dim;
    constexpr int kTokens = 9;
    constexpr int kModelLen = 50;
    const int64_t cols = int64_t{c.num_heads + 2 * c.num_kv_heads} * c.head_dim;
    const int64_t stride = cols + 7;
    const std::vector<float> x = RandomFloats(kTokens * stride, 7);
    const std::vector<float> q_norm = RandomFloats(std::max(1, c.num_heads) * c.head_dim, 8);
    const std::vector<float> k_norm = RandomFloats(std::max(1, c.num_kv_heads) * c.head_dim, 9);
    std::vector<float> squares = RandomFloats(kTokens * 2, 11);
    for (float& sum : squares) sum = 100 * std::abs(sum);
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
    const auto norm = [&](const std::vector<float>& weight, int heads) {
      const int64_t size = int64_t{c.of_all_heads ? heads : 1} * c.head_dim;
      return c.has_norm ? View(weight, 1, size, size) : ConstMatrixView();
    };
    HeadNorms norms{norm(q_norm, c.num_heads), norm(k_norm, c.num_kv_heads), 1e-6f,
                    c.norm_after_rotary};
    norms.without_weight = c.without_weight;
    norms.values = c.values;
    if (c.of_all_heads) {
      norms.squares = View(squares, kTokens, 2, 2);
      norms.q_size = 1000;
      norms.k_size = 300;
    }
    Compare(kRopeTolerance, [&](Backend& backend) {
      std::vector<float> qkv = x;
      backend.NormRope(
          index, heads, norms,
          {View(rope, kModelLen, rotary_dim, rotary_dim), c.interleaved,
           c.scales_q ? View(q_scale, kModelLen, 1, 1) : ConstMatrixView(), c.of_halves},
          View(qkv, kTokens, cols, stride));
      return qkv;
    });
  }
}

// The last columns of each head of q go into those of the latent's heads; the token's own turn in
// place, and nothing else is written.
TEST_P(NormRopeTest, RopeLatentsTurnsTheLastColumnsOfEachHead) {
  struct Case {
    int num_heads;
    int q_dim;
    int head_dim;
    int rotary_dim;
    bool interleaved;
  };
  for (const Case& c : {Case{8, 24, 40, 8, true}, Case{1, 10, 12, 10, false},
                        Case{16, 192, 576, 64, true}, Case{3, 40, 72, 34, false}}) {
    SCOPED_TRACE(testing::Message() << c.num_heads << " heads, r " << c.rotary_dim);
    constexpr int kTokens = 5;
    const int64_t q_cols = int64_t{c.num_heads} * c.q_dim;
    const int64_t cols = int64_t{c.num_heads + 1} * c.head_dim;
    const std::vector<float> q = RandomFloats(kTokens * (q_cols + 3), 1);
    const std::vector<float> latents = RandomFloats(kTokens * (cols + 5), 2);
    const std::vector<float> table = RandomFloats(9 * c.rotary_dim, 3);
    const int32_t position[kTokens] = {0, 1, 8, 3, 3};
    const std::vector<int32_t> head_to_kv(c.num_heads, 0);
    StepIndex index;
    index.num_tokens = kTokens;
    index.position = position;
    const HeadLayout heads{c.num_heads, 1, c.head_dim, head_to_kv.data(),
                           c.head_dim - c.rotary_dim};
    const Rotary rotary{View(table, 9, c.rotary_dim, c.rotary_dim), c.interleaved, {}};
    const auto run = [&](Backend& backend) {
      std::vector<float> out = latents;
      backend.RopeLatents(index, heads, rotary, View(q, kTokens, q_cols, q_cols + 3),
                          View(out, kTokens, cols, cols + 5));
      return out;
    };
    Compare(kRopeTolerance, run);
    const std::vector<float> out = run(*backend_);
    for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
      const int64_t column = i % (cols + 5);
      const bool is_turned = column < cols && column % c.head_dim >= c.head_dim - c.rotary_dim;
      if (is_turned) continue;
      ASSERT_EQ(out[i], latents[i]) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, NormRopeTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
