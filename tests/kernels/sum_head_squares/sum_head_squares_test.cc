#include <cmath>

#include "tests/kernels/op_test.h"

namespace bulkhead {
namespace {

using SumHeadSquaresTest = OpTest;

struct LeavesCase {
  int num_heads;
  int num_kv_heads;
  int head_dim;
  std::vector<int64_t> q;
  std::vector<int64_t> k;
};

TEST_P(SumHeadSquaresTest, LeavesJoinAsATree) {
  for (const LeavesCase& c : {
           LeavesCase{8, 4, 16, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {0, 1, 1, 2, 2, 3, 3, 4, 4}},
           LeavesCase{6, 3, 24, {0, 1, 2, 3, 4, 5, 5, 6, 6}, {0, 1, 1, 2, 2, 3, 3, 3, 3}},
           LeavesCase{14, 2, 10, {0, 4, 7, 11, 14}, {0, 1, 1, 2, 2}},
           LeavesCase{5, 5, 33, {0, 5}, {0, 5}},
           LeavesCase{3, 2, 8, {0, 2, 3}, {1, 2, 2}},  // the first KV head counts elsewhere
           LeavesCase{0, 0, 16, {0, 0}, {0, 0}},
       }) {
    SCOPED_TRACE(testing::Message() << c.num_heads << "/" << c.num_kv_heads);
    constexpr int kTokens = 5;
    const int64_t cols = int64_t{c.num_heads + 2 * c.num_kv_heads} * c.head_dim;
    const std::vector<float> qkv = RandomFloats(kTokens * (cols + 3), 7);
    Compare(kNormTolerance, [&](Backend& backend) {
      std::vector<float> squares(kTokens * 3, 7.0F);
      backend.SumHeadSquares({c.num_heads, c.num_kv_heads, c.head_dim, nullptr}, {c.q, c.k},
                             View(qkv, kTokens, cols, cols + 3), View(squares, kTokens, 2, 3));
      return squares;
    });
  }
}

// What a rank without heads adds to a sum is the sum as it was, -0.0 too.
TEST_P(SumHeadSquaresTest, NoHeadsAreMinusZero) {
  const std::vector<float> qkv = {1};
  const std::vector<int64_t> borders = {0, 0, 0};
  std::vector<float> squares = {1, 1};
  backend_->SumHeadSquares({0, 0, 16, nullptr}, {borders, borders}, View(qkv, 1, 0, 1),
                           View(squares, 1, 2, 2));
  EXPECT_TRUE(squares[0] == 0 && std::signbit(squares[0]));
  EXPECT_TRUE(squares[1] == 0 && std::signbit(squares[1]));
}

// Two ranks' halves of the tree are joined by the sum over ranks.
TEST_P(SumHeadSquaresTest, RanksHaveSubtrees) {
  constexpr int kDim = 16;
  const std::vector<int64_t> borders = {0, 1, 2, 4, 6};
  const std::vector<float> qkv = RandomFloats(18 * kDim, 3);
  const auto sum = [&](int first, int heads, const std::vector<int64_t>& leaves) {
    std::vector<float> part(3 * heads * kDim);
    for (int i = 0; i < 3; ++i) {  // q, k and v
      std::copy_n(&qkv[(6 * i + first) * kDim], heads * kDim, &part[i * heads * kDim]);
    }
    std::vector<float> squares(2);
    backend_->SumHeadSquares({heads, heads, kDim, nullptr}, {leaves, leaves},
                             View(part, 1, 3 * heads * kDim, 3 * heads * kDim),
                             View(squares, 1, 2, 2));
    return squares;
  };
  const std::vector<float> whole = sum(0, 6, borders);
  const std::vector<float> left = sum(0, 2, {0, 1, 2});
  const std::vector<float> right = sum(2, 4, {0, 2, 4});
  ExpectSameBits({left[0] + right[0], left[1] + right[1]}, whole);
}

INSTANTIATE_TEST_SUITE_P(Variants, SumHeadSquaresTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
