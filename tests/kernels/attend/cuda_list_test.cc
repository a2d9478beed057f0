#include "kernels/attend/cuda_list.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// {sequence, split} of a step whose sequences have {tokens before it, tokens in it}.
std::vector<std::pair<int, int>> ItemsFor(const std::vector<std::pair<int, int>>& sequences) {
  std::vector<int32_t> seq_begin = {0};
  std::vector<int32_t> position;
  for (const auto& [before, tokens] : sequences) {
    for (int i = 0; i < tokens; ++i) position.push_back(before + i);
    seq_begin.push_back(static_cast<int32_t>(position.size()));
  }
  StepIndex index;
  index.num_seqs = static_cast<int>(sequences.size());
  index.num_tokens = static_cast<int>(position.size());
  index.seq_begin = seq_begin.data();
  index.position = position.data();
  std::vector<int32_t> list(AttendList::Bytes(index.num_seqs, cuda::kMaxSplits) / 4 + 1, -7);
  const int64_t bytes = AttendList::Fill(index, list.data());
  EXPECT_EQ(bytes, (1 + list[0]) * static_cast<int64_t>(sizeof(cuda::AttendItem)));
  EXPECT_EQ(list.back(), -7);
  std::vector<std::pair<int, int>> items;
  for (int i = 0; i < list[0]; ++i) {
    const cuda::AttendItem item = AttendList::ItemsOf(list.data())[i];
    items.emplace_back(item.seq, item.split);
  }
  return items;
}

TEST(AttendListTest, HasEverySplitOnceTheLongestFirst) {
  EXPECT_THAT(ItemsFor({{9, 1}, {687, 1}, {255, 1}, {99, 1}}),
              ElementsAre(Pair(1, 0), Pair(1, 1), Pair(2, 0), Pair(1, 2), Pair(3, 0), Pair(0, 0)));
}

TEST(AttendListTest, CutsAContextByItsOwnLengthAlone) {
  const int longest = cuda::kMinSplitTokens * cuda::kMaxSplits;
  EXPECT_EQ(ItemsFor({{longest - 1, 1}}).size(), cuda::kMaxSplits);
  const auto items = ItemsFor({{300, 1}, {longest + 44, 1}});  // splits of 512, a rest of 45
  EXPECT_EQ(items.size(), 1U + 1 + 17);
  EXPECT_EQ(items[0], std::make_pair(1, 0));
  EXPECT_EQ(items[16], std::make_pair(0, 0));
  EXPECT_EQ(items[17], std::make_pair(0, 1)) << "45 tokens as well, and the sequence comes first";
  EXPECT_EQ(items[18], std::make_pair(1, 16));
}

TEST(AttendListTest, NoContextHasMoreSplitsThanThereIsRoomFor) {
  for (int tokens = 1; tokens < 2'000'000; tokens += 1 + tokens / 100) {
    const int split_tokens = cuda::SplitTokens(tokens);
    EXPECT_LE((tokens + split_tokens - 1) / split_tokens, cuda::kMaxSplits) << tokens;
  }
}

TEST(AttendListTest, PutsEqualSplitsInTheOrderOfTheirSequences) {
  EXPECT_THAT(ItemsFor({{40, 1}, {0, 1}, {40, 1}, {296, 1}}),
              ElementsAre(Pair(3, 0), Pair(0, 0), Pair(2, 0), Pair(3, 1), Pair(1, 0)));
}

TEST(AttendListTest, LeavesOutSequencesOfMoreTokensOrNone) {
  EXPECT_THAT(ItemsFor({{0, 7}, {20, 0}, {600, 2}, {3, 1}}), ElementsAre(Pair(3, 0)));
  EXPECT_THAT(ItemsFor({{0, 7}}), IsEmpty());
  EXPECT_THAT(ItemsFor({}), IsEmpty());
}

}  // namespace
}  // namespace bulkhead
