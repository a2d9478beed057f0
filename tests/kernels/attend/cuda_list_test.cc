#include "kernels/attend/cuda_list.h"

#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr int kMaxTokens = 2000;
// Rows of 4,096 numbers: 1,024 rows of sums for a sequence of several tokens.
constexpr int64_t kRowFloats = 4096;

// The list of a step whose sequences have {tokens before it, tokens in it}.
class ListOf {
 public:
  explicit ListOf(const std::vector<std::pair<int, int>>& sequences, int max_num_seqs = 32,
                  int64_t row_floats = kRowFloats) {
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
    const StepLimits limits{kMaxTokens, max_num_seqs, 1 << 20};
    splits = CudaAttentionSplits(limits, row_floats);
    memory_.assign(AttendList::Bytes(limits, splits) / 4 + 1, -7);
    const int64_t bytes = list.Fill(index, splits, memory_.data());
    EXPECT_LE(bytes, AttendList::Bytes(limits, splits));
    EXPECT_EQ(memory_[bytes / 4], -7) << "as much is written as is said";
  }

  int num_decode_items() const { return memory_[0]; }
  cuda::AttendItem item(int i) const { return AttendList::ItemsOf(memory_.data())[i]; }
  cuda::CombineItem combined(int i) const { return list.CombinedOf(memory_.data())[i]; }
  // {sequence, split} of those of one token.
  std::vector<std::pair<int, int>> DecodeItems() const {
    std::vector<std::pair<int, int>> items;
    for (int i = 0; i < num_decode_items(); ++i) items.emplace_back(item(i).seq, item(i).split);
    return items;
  }

  // That lies before each of them, and that of all.
  std::vector<int32_t> WorkBefore() const {
    const auto begin = memory_.begin() + memory_[1];
    return {begin, begin + num_decode_items() + 1};
  }

  AttendList list;
  CudaAttentionSplits splits;

 private:
  std::vector<int32_t> memory_;
};

std::vector<std::pair<int, int>> ItemsFor(const std::vector<std::pair<int, int>>& sequences) {
  return ListOf(sequences).DecodeItems();
}

TEST(AttendListTest, HasEverySplitOnceTheLongestFirst) {
  EXPECT_THAT(ItemsFor({{9, 1}, {687, 1}, {256, 1}, {99, 1}}),
              ElementsAre(Pair(1, 0), Pair(1, 1), Pair(2, 0), Pair(1, 2), Pair(3, 0), Pair(3, 1),
                          Pair(0, 0), Pair(2, 1)));
}

TEST(AttendListTest, CutsAContextByItsOwnLengthAlone) {
  const int longest = cuda::kMinSplitTokens * cuda::kFewSplits;
  EXPECT_EQ(ItemsFor({{longest - 1, 1}}).size(), cuda::kFewSplits);
  EXPECT_EQ(ItemsFor({{63, 1}}).size(), 1U);
  EXPECT_EQ(ItemsFor({{255, 1}}).size(), 4U) << "of 64 tokens";
  EXPECT_EQ(ItemsFor({{256, 1}}).size(), 2U) << "of 256 and 1";
  const auto items = ItemsFor({{300, 1}, {longest + 44, 1}});  // splits of 512, a rest of 45
  EXPECT_EQ(items.size(), 1U + 1 + 17);
  EXPECT_EQ(items[0], std::make_pair(1, 0));
  EXPECT_EQ(items[16], std::make_pair(0, 0));
  EXPECT_EQ(items[17], std::make_pair(0, 1)) << "45 tokens as well, and the sequence comes first";
  EXPECT_EQ(items[18], std::make_pair(1, 16));
}

TEST(AttendListTest, ARankWithFewHeadsCutsALongContextIntoMore) {
  const auto splits_of = [](int64_t row_floats, std::pair<int, int> sequence) {
    const ListOf list({sequence}, 2, row_floats);
    return sequence.second == 1 ? list.num_decode_items() : list.list.rounds()[0].num_items;
  };
  const int tokens = 1 << 17;
  EXPECT_EQ(splits_of(4096, {tokens - 1, 1}), 32);
  EXPECT_EQ(splits_of(2048, {tokens - 1, 1}), 64) << "of 2,048 tokens";
  EXPECT_EQ(splits_of(1024, {tokens - 1, 1}), 128) << "of 1,024 tokens";
  EXPECT_EQ(splits_of(128, {tokens - 1, 1}), 128);
  EXPECT_EQ(splits_of(1024, {20'000 - 1, 1}), 40) << "of 512 tokens";
  EXPECT_EQ(splits_of(1024, {8192 - 1, 1}), 32) << "as short as any";
  EXPECT_EQ(splits_of(4096, {tokens - 20, 20}), 32);
  EXPECT_EQ(splits_of(1024, {tokens - 20, 20}), 128);
  EXPECT_EQ(splits_of(1024, {20'000 - 20, 20}), 40);
  EXPECT_EQ(splits_of(1024, {tokens - 128, 128}), 32) << "as many sums as there is room for";
}

TEST(AttendListTest, NoContextHasMoreSplitsThanThereIsRoomFor) {
  EXPECT_EQ(ListOf({}).splits.max_part_rows, 1024);
  for (const int64_t row_floats : {64, 1024, 1500, 4096}) {
    const CudaAttentionSplits splits = ListOf({}, 2, row_floats).splits;
    for (int tokens = 1; tokens < 1 << 20; tokens += 1 + tokens / 100) {
      // Where a shorter max_model_len makes the same splits of it.
      const CudaAttentionSplits of_short({kMaxTokens, 2, tokens}, row_floats);
      for (const int new_tokens : {1, 2, 20, 32, 33, 100, 511, 512, 513, 2000}) {
        if (new_tokens > tokens) continue;
        const int split_tokens =
            cuda::SplitTokens(new_tokens, tokens, splits.per_context, splits.max_part_rows);
        const int count = (tokens + split_tokens - 1) / split_tokens;
        EXPECT_LE(count, of_short.per_context) << tokens;
        EXPECT_LE(of_short.per_context, cuda::kMaxSplits);
        if (new_tokens == 1) {
          EXPECT_EQ(split_tokens,
                    cuda::SplitTokens(1, tokens, of_short.per_context, of_short.max_part_rows));
        }
        if (new_tokens == 1 || count == 1) continue;
        EXPECT_LE(count * new_tokens, splits.max_part_rows) << tokens;
        EXPECT_GE(split_tokens, new_tokens) << tokens;
      }
    }
  }
}

TEST(AttendListTest, PutsEqualSplitsInTheOrderOfTheirSequences) {
  EXPECT_THAT(ItemsFor({{40, 1}, {0, 1}, {40, 1}, {296, 1}}),
              ElementsAre(Pair(3, 0), Pair(0, 0), Pair(2, 0), Pair(3, 1), Pair(1, 0)));
}

TEST(AttendListTest, SaysWhatWorkLiesBeforeEachSplitOfOneToken) {
  const ListOf list({{299, 1}, {8000, 20}, {16, 1}});
  EXPECT_THAT(list.DecodeItems(), ElementsAre(Pair(0, 0), Pair(0, 1), Pair(2, 0)));
  const int whole = cuda::WorkOfSplit(256);
  const int rest = cuda::WorkOfSplit(44);
  EXPECT_GT(whole, rest);
  EXPECT_THAT(list.WorkBefore(),
              ElementsAre(0, whole, whole + rest, whole + rest + cuda::WorkOfSplit(17)));
  EXPECT_THAT(ListOf({{0, 7}}).WorkBefore(), ElementsAre(0));
}

TEST(AttendListTest, LeavesOutSequencesOfMoreTokensOrNone) {
  EXPECT_THAT(ItemsFor({{0, 7}, {20, 0}, {600, 2}, {3, 1}}), ElementsAre(Pair(3, 0)));
  EXPECT_THAT(ItemsFor({{0, 7}}), IsEmpty());
  EXPECT_THAT(ItemsFor({}), IsEmpty());
}

TEST(AttendListTest, CutsALongContextOfAFewTokens) {
  const ListOf follow_up({{50, 1}, {8000, 20}});
  EXPECT_TRUE(follow_up.list.has_decodes());
  EXPECT_EQ(follow_up.list.max_whole_tokens(), 0);
  ASSERT_THAT(follow_up.list.rounds(), SizeIs(1));
  const AttendList::Round& round = follow_up.list.rounds()[0];
  EXPECT_EQ(round.first_item, 1) << "behind that of the sequence of one token";
  EXPECT_EQ(round.num_items, 32) << "31 of 256 tokens and one of 84";
  EXPECT_EQ(round.num_combined, 20);
  EXPECT_EQ(round.max_tokens, 20);
  // Each split's sums lie apart: of the tokens 1 to 20 of the step in rows 20 split to 20 split +
  // 19, where CombineTokens looks for them.
  for (int split = 0; split < 32; ++split) {
    const cuda::AttendItem item = follow_up.item(1 + split);
    EXPECT_EQ(item.seq, 1);
    EXPECT_EQ(item.split, split);
    EXPECT_EQ(item.split_tokens, 256);
    EXPECT_EQ(item.row0 + 1, 20 * split);
    for (int token = 0; token < 20; ++token) {
      const cuda::CombineItem to = follow_up.combined(token);
      EXPECT_EQ(to.token, 1 + token);
      EXPECT_EQ(to.row + split * to.row_step, item.row0 + to.token);
      EXPECT_EQ(to.split_tokens, 256);
    }
  }
}

// From the sequence's own tokens and length alone, whoever comes with it.
TEST(AttendListTest, SplitsAreAsLongAsTheTokensOfTheStepAndNoMoreThanTheirSumsHaveRoom) {
  const auto split_tokens = [](int before, int tokens) {
    const ListOf list({{before, tokens}});
    return list.list.rounds().empty() ? 0 : list.item(0).split_tokens;
  };
  EXPECT_EQ(split_tokens(0, 300), 0) << "whole";
  EXPECT_EQ(split_tokens(200, 56), 0);
  EXPECT_EQ(split_tokens(200, 57), 256) << "more than one split";
  EXPECT_EQ(split_tokens(400, 300), 320) << "3 splits have room; no shorter than 300 tokens";
  EXPECT_EQ(split_tokens(1700, 300), 704) << "a third of 2000 in whole tiles of 64";
  EXPECT_EQ(split_tokens(2000, 60), 256);
  EXPECT_EQ(split_tokens(8000, 60), 512) << "of 60 tokens 17 splits have room";
  EXPECT_EQ(split_tokens(8000, 200), 1664) << "5 splits";
  EXPECT_EQ(split_tokens(30000, 512), 15296) << "2 splits";
  EXPECT_EQ(split_tokens(30000, 513), 0) << "no room for a second split";
  EXPECT_EQ(split_tokens(30000, 2), 960) << "32 splits";
}

TEST(AttendListTest, MakesRoundsOfAsManySequencesAsTheSumsHaveRoomFor) {
  // 32 x 32 rows of sums for sequences of one token; 20 x 32 of each of these.
  const ListOf three({{8000, 20}, {0, 9}, {8000, 20}, {5, 1}, {7000, 3}}, 32);
  EXPECT_EQ(three.splits.part_rows, 1024);
  EXPECT_GT(three.list.max_whole_tokens(), 0);
  EXPECT_THAT(three.list.rounds(),
              ElementsAre(testing::AllOf(Field(&AttendList::Round::first_item, 1),
                                         Field(&AttendList::Round::num_items, 32),
                                         Field(&AttendList::Round::num_combined, 20)),
                          testing::AllOf(Field(&AttendList::Round::first_item, 33),
                                         Field(&AttendList::Round::num_items, 32 + 28),
                                         Field(&AttendList::Round::first_combined, 20),
                                         Field(&AttendList::Round::num_combined, 23))));
  // Rows of a round's sums are no others', and there is room for them.
  for (const AttendList::Round& round : three.list.rounds()) {
    std::set<int> rows;
    for (int i = 0; i < round.num_combined; ++i) {
      const cuda::CombineItem to = three.combined(round.first_combined + i);
      const int splits = to.token == 50 || to.token == 51 || to.token == 52 ? 28 : 32;
      for (int split = 0; split < splits; ++split) {
        EXPECT_TRUE(rows.insert(to.row + split * to.row_step).second);
      }
    }
    EXPECT_LT(*rows.rbegin(), three.splits.part_rows);
  }
  EXPECT_THAT(ListOf({{8000, 20}, {8000, 20}, {8000, 20}}, 64).list.rounds(), SizeIs(1));
}

}  // namespace
}  // namespace bulkhead
