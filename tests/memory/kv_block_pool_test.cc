#include "memory/kv_block_pool.h"

#include <memory>
#include <random>
#include <set>

#include "gtest/gtest.h"
#include "tests/support/find_prefix.h"

namespace bulkhead {
namespace {

TEST(KvBlockPoolTest, GrowIsAllOrNothing) {
  KvBlockPool pool(5);
  std::vector<BlockId> blocks;
  EXPECT_TRUE(pool.Grow(blocks, 3));
  EXPECT_FALSE(pool.Grow(blocks, 3));
  EXPECT_EQ(blocks.size(), 3U);
  EXPECT_EQ(pool.num_free(), 2);
  pool.Return(blocks);
  EXPECT_TRUE(blocks.empty());
  EXPECT_EQ(pool.num_free(), 5);
}

TEST(KvBlockPoolTest, BlockZeroIsNeverHandedOutAndNoBlockTwice) {
  KvBlockPool pool(100);
  std::mt19937 random(7);
  std::vector<std::vector<BlockId>> lists(8);
  for (int step = 0; step < 5000; ++step) {
    std::vector<BlockId>& list = lists[random() % lists.size()];
    if (random() % 3 == 0) {
      pool.Return(list);
    } else {
      const bool had_room = pool.num_free() >= 4;
      EXPECT_EQ(pool.Grow(list, 4), had_room);
    }
    std::set<BlockId> out;
    size_t count = 0;
    for (const auto& each : lists) {
      out.insert(each.begin(), each.end());
      count += each.size();
    }
    ASSERT_EQ(out.size(), count);
    ASSERT_EQ(out.count(0), 0U);
    ASSERT_EQ(pool.num_free(), 100 - static_cast<int64_t>(count));
  }
  for (auto& list : lists) pool.Return(list);
}

class CachingPoolTest : public testing::Test {
 protected:
  // Takes blocks for all of `tokens`, as after a prefill.
  std::vector<BlockId> Hold(const std::vector<int32_t>& tokens, absl::string_view salt = "") {
    std::vector<BlockId> blocks;
    const SequenceKey key = {SequenceDigest(salt), tokens};
    pool_.TakePrefix(FindPrefix(pool_, key), blocks);
    auto cached = static_cast<int64_t>(blocks.size());
    EXPECT_TRUE(pool_.Grow(blocks, static_cast<int64_t>(tokens.size() + 1) / 2 - cached));
    for (; 2 * cached + 2 <= static_cast<int64_t>(tokens.size()); ++cached) {
      const BlockId parent = cached == 0 ? 0 : blocks[cached - 1];
      blocks[cached] = pool_.CacheBlock(key.Block(cached, 2, parent), blocks[cached]);
    }
    return blocks;
  }

  KvBlockPool pool_{6, std::make_unique<PrefixCache>(6, 2)};
};

TEST_F(CachingPoolTest, IdleBlocksCountAsFreeAndAreFoundAgain) {
  std::vector<BlockId> blocks = Hold({1, 2, 3, 4, 5});
  const std::vector<BlockId> first = blocks;
  EXPECT_EQ(pool_.num_free(), 3);
  pool_.Return(blocks);
  EXPECT_EQ(pool_.num_free(), 6);
  EXPECT_EQ(pool_.num_idle(), 2);
  const CachedPrefix prefix = FindPrefix(pool_, {{}, {1, 2, 3, 4, 6}});
  EXPECT_EQ(prefix.blocks, std::vector<BlockId>({first[0], first[1]}));
  EXPECT_EQ(prefix.num_idle, 2);
  EXPECT_TRUE(FindPrefix(pool_, {{}, {1, 2, 3}}).blocks.size() == 1);
  EXPECT_TRUE(FindPrefix(pool_, {{}, {3, 4}}).blocks.empty());
  EXPECT_TRUE(FindPrefix(pool_, {SequenceDigest("salt"), {1, 2}}).blocks.empty());
}

TEST_F(CachingPoolTest, SharedBlocksReturnWithTheirLastHolder) {
  std::vector<BlockId> a = Hold({1, 2, 3});
  std::vector<BlockId> b = Hold({1, 2, 4});
  EXPECT_EQ(a[0], b[0]);
  EXPECT_NE(a[1], b[1]);
  EXPECT_EQ(pool_.NumHolders(a[0]), 2);
  EXPECT_EQ(FindPrefix(pool_, {{}, {1, 2}}).num_idle, 0);
  EXPECT_EQ(pool_.num_free(), 3);
  pool_.Return(a);
  EXPECT_EQ(pool_.num_free(), 4);
  pool_.Return(b);
  EXPECT_EQ(pool_.num_free(), 6);
}

TEST_F(CachingPoolTest, BlockComputedTwiceIsHeldOnce) {
  std::vector<BlockId> a;
  std::vector<BlockId> b;
  ASSERT_TRUE(pool_.Grow(a, 1) && pool_.Grow(b, 1));
  const std::vector<int32_t> tokens = {1, 2};
  EXPECT_EQ(pool_.CacheBlock({0, tokens}, a[0]), a[0]);
  EXPECT_EQ(pool_.num_free(), 4);
  b[0] = pool_.CacheBlock({0, tokens}, b[0]);
  EXPECT_EQ(b[0], a[0]);
  EXPECT_EQ(pool_.num_free(), 5);
  pool_.Return(a);
  pool_.Return(b);
}

TEST_F(CachingPoolTest, GrowthTakesIdleBlocksWhenNoOthersAreLeftOldestFirst) {
  std::vector<BlockId> a = Hold({1, 2, 3, 4});
  std::vector<BlockId> b = Hold({5, 6});
  pool_.Return(b);
  pool_.Return(a);
  std::vector<BlockId> c;
  ASSERT_TRUE(pool_.Grow(c, 3));
  EXPECT_EQ(pool_.num_idle(), 3);
  ASSERT_TRUE(pool_.Grow(c, 1));
  EXPECT_TRUE(FindPrefix(pool_, {{}, {5, 6}}).blocks.empty());
  ASSERT_TRUE(pool_.Grow(c, 1));
  EXPECT_EQ(FindPrefix(pool_, {{}, {1, 2, 3, 4}}).blocks.size(), 1U);
  EXPECT_FALSE(pool_.Grow(c, 2));
  ASSERT_TRUE(pool_.Grow(c, 1));
  EXPECT_EQ(pool_.num_free(), 0);
  pool_.Return(c);
}

TEST(KvBlockPoolDeathTest, ALeakAndADoubleReturnAreBugs) {
  EXPECT_EXIT(
      {
        KvBlockPool pool(2);
        std::vector<BlockId> blocks;
        if (!pool.Grow(blocks, 1)) std::exit(1);
      },
      testing::ExitedWithCode(70), "num_free");
  EXPECT_EXIT(
      {
        KvBlockPool pool(2);
        std::vector<BlockId> blocks = {1};
        pool.Return(blocks);
      },
      testing::ExitedWithCode(70), "check failed");
}

TEST_F(CachingPoolTest, APrefixThatIsUpdatedIsTheOneThatIsFoundAnew) {
  std::mt19937 random(3);
  const std::vector<int32_t> wanted = {1, 1, 1, 2, 2, 1, 2};
  CachedPrefix prefix;
  std::set<size_t> lengths_seen;
  std::vector<std::vector<BlockId>> lists(3);
  for (int step = 0; step < 5000; ++step) {
    std::vector<BlockId>& list = lists[random() % lists.size()];
    pool_.Return(list);
    std::vector<int32_t> tokens(wanted.begin(), wanted.begin() + random() % wanted.size());
    tokens.resize(tokens.size() + random() % 3, 1);
    if (random() % 2 == 0 && !tokens.empty()) tokens[0] = 9;
    if (pool_.num_free() >= 4 && random() % 4 > 0) list = Hold(tokens);
    pool_.UpdatePrefix({{}, wanted}, prefix);
    const CachedPrefix anew = FindPrefix(pool_, {{}, wanted});
    ASSERT_EQ(prefix.blocks, anew.blocks);
    ASSERT_EQ(prefix.num_idle, anew.num_idle);
    lengths_seen.insert(anew.blocks.size());
  }
  EXPECT_EQ(lengths_seen, (std::set<size_t>{0, 1, 2, 3}));
  for (auto& list : lists) pool_.Return(list);
}

// In a group with a window.
TEST(KvBlockPoolTest, WhatIsReservedIsThereWhenItIsTaken) {
  KvBlockPool pool(6, std::make_unique<PrefixCache>(6, 2));
  const std::vector<int32_t> tokens = {1, 2};
  const SequenceKey key = {.tokens = tokens};
  std::vector<BlockId> first;
  std::vector<BlockId> second;
  EXPECT_TRUE(pool.Grow(first, 1) && pool.Reserve(2));
  EXPECT_TRUE(pool.Grow(second, 1) && pool.Reserve(2));
  EXPECT_FALSE(pool.Reserve(1));
  std::vector<BlockId> other;
  EXPECT_FALSE(pool.Grow(other, 1));
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(pool.num_available(), 0);

  // Both hold an equal block, so that one of the four is free: it is none the less not available.
  const BlockKey full = key.Block(0, 2, 0);
  first[0] = pool.CacheBlock(full, first[0]);
  const BlockId mine = pool.CacheBlock(full.InGroup(1, first[0]), pool.TakeReserved());
  second[0] = pool.CacheBlock(full, second[0]);
  const BlockId same = pool.CacheBlock(full.InGroup(1, second[0]), pool.TakeReserved());
  EXPECT_EQ(same, mine);
  EXPECT_EQ(second[0], first[0]);
  EXPECT_EQ(pool.num_available(), 1);  // `second` gave back what was equal in group 0
  EXPECT_EQ(pool.num_free(), 4);

  const BlockId more[] = {pool.TakeReserved(), pool.TakeReserved()};
  pool.ReturnReserved(mine);
  EXPECT_EQ(pool.num_available(), 1);
  EXPECT_EQ(pool.cache()->references(mine), 1);
  pool.ReturnReserved(same);
  EXPECT_EQ(pool.num_idle(), 1);
  EXPECT_EQ(pool.num_available(), 1);
  const CachedPrefix prefix = FindPrefix(pool, key);
  EXPECT_EQ(pool.FindWindow(key, prefix, 1, 0, 1), std::vector<BlockId>{mine});
  EXPECT_TRUE(pool.FindWindow(key, prefix, 2, 0, 1).empty());
  pool.TakeCached(mine);
  EXPECT_EQ(pool.num_idle(), 0);
  EXPECT_EQ(pool.num_available(), 1);
  pool.ReturnReserved(mine);
  for (const BlockId block : more) pool.ReturnReserved(block);
  pool.Unreserve(4);
  pool.Return(first);
  pool.Return(second);
  EXPECT_EQ(pool.num_available(), 6);
  pool.cache()->CheckInvariants();
}

}  // namespace
}  // namespace bulkhead
