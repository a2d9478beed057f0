#include "runtime/engine/decode_rows.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

TEST(DecodeRowsTest, DecodesComeInFewSizesAndTheLargestIsAllThatMayRun) {
  const auto rows = [](int num_seqs) { return PaddedDecodeRows(num_seqs, 27); };
  const std::vector<std::pair<int, int>> want = {{1, 1},   {2, 2},   {3, 4},   {4, 4},
                                                 {5, 8},   {8, 8},   {9, 16},  {16, 16},
                                                 {17, 24}, {24, 24}, {25, 27}, {27, 27}};
  for (const auto& [num_seqs, padded] : want) EXPECT_EQ(rows(num_seqs), padded) << num_seqs;
  EXPECT_EQ(PaddedDecodeRows(5, 6), 6);
  EXPECT_EQ(MaxDecodeRows(64, 2048), 64);
  EXPECT_EQ(MaxDecodeRows(64, 32), 32);
}

}  // namespace
}  // namespace bulkhead
