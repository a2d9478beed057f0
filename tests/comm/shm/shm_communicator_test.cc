#include "comm/shm/shm_communicator.h"

#include <gtest/gtest.h>

#include "tests/comm/terms.h"

namespace bulkhead {
namespace {

std::vector<const float*> Pointers(const std::vector<std::vector<float>>& partial_sums) {
  std::vector<const float*> pointers;
  for (const auto& partial : partial_sums) pointers.push_back(partial.data());
  return pointers;
}

TEST(TreeSum, EqualsTheTreeOfEveryRankCountBitForBit) {
  for (int size = 1; size <= 64; ++size) {
    const int64_t elements = 1500;
    std::vector<std::vector<float>> partial_sums;
    for (int rank = 0; rank < size; ++rank)
      partial_sums.push_back(MakePartialSum(7, rank, elements));
    std::vector<float> sum(elements);
    TreeSum(Pointers(partial_sums), 0, elements, sum.data());
    EXPECT_TRUE(SameBits(sum.data(), ExpectedSum(7, size, elements))) << size << " ranks";
  }
}

TEST(TreeSum, AWordedExampleForFiveRanks) {
  const std::vector<std::vector<float>> partial_sums = {{1e8F}, {1.0F}, {-1e8F}, {3.0F}, {1e-3F}};
  float sum = 0;
  TreeSum(Pointers(partial_sums), 0, 1, &sum);
  EXPECT_EQ(sum, ((1e8F + 1.0F) + -1e8F) + (3.0F + 1e-3F));
}

TEST(TreeSum, ARangeHasTheBitsOfTheWholeAndTouchesNothingElse) {
  const int64_t elements = 5000;
  std::vector<std::vector<float>> partial_sums;
  for (int rank = 0; rank < 6; ++rank) partial_sums.push_back(MakePartialSum(8, rank, elements));
  const std::vector<float> expected = ExpectedSum(8, 6, elements);
  std::vector<float> sum(elements, 42.0F);
  TreeSum(Pointers(partial_sums), 37, 2085, sum.data());
  for (int64_t i = 0; i < elements; ++i) {
    EXPECT_EQ(sum[i], i >= 37 && i < 2085 ? expected[i] : 42.0F) << i;
  }
}

TEST(TreeSum, NegativeZeroIsNeutral) {
  const std::vector<std::vector<float>> zeros(5, std::vector<float>{-0.0F});
  float sum = 1;
  TreeSum(Pointers(zeros), 0, 1, &sum);
  EXPECT_TRUE(SameBits(&sum, {-0.0F}));
}

}  // namespace
}  // namespace bulkhead
