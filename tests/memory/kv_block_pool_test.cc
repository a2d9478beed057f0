#include "memory/kv_block_pool.h"

#include <random>
#include <set>

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace bulkhead
