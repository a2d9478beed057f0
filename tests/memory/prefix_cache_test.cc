#include "memory/prefix_cache.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

uint64_t BadHash(uint64_t /*before*/, absl::Span<const int32_t> /*tokens*/) { return 7; }

BlockKey Key(BlockId parent, absl::Span<const int32_t> tokens, absl::string_view salt = "") {
  return {parent, tokens, SequenceDigest(salt)};
}

TEST(PrefixCacheTest, FindsABlockByParentAndTokens) {
  PrefixCache cache(8, 2);
  cache.Insert(Key(0, {1, 2}), 5);
  cache.Insert(Key(5, {3, 4}), 6);
  EXPECT_EQ(cache.Find(Key(0, {1, 2})), 5);
  EXPECT_EQ(cache.Find(Key(5, {3, 4})), 6);
  EXPECT_EQ(cache.Find(Key(0, {3, 4})), 0);
  EXPECT_EQ(cache.Find(Key(6, {3, 4})), 0);
  EXPECT_EQ(cache.Find(Key(0, {1, 3})), 0);
}

TEST(PrefixCacheTest, SaltsShareNothing) {
  PrefixCache cache(8, 2);
  cache.Insert(Key(0, {1, 2}), 1);
  cache.Insert(Key(0, {1, 2}, "a"), 2);
  cache.Insert(Key(0, {1, 2}, std::string(128, 'a')), 3);
  EXPECT_EQ(cache.Find(Key(0, {1, 2})), 1);
  EXPECT_EQ(cache.Find(Key(0, {1, 2}, "a")), 2);
  EXPECT_EQ(cache.Find(Key(0, {1, 2}, "aa")), 0);
  EXPECT_EQ(cache.Find(Key(0, {1, 2}, std::string("a\0", 2))), 0);
  EXPECT_EQ(cache.Find(Key(0, {1, 2}, std::string(128, 'a'))), 3);
}

TEST(PrefixCacheTest, EqualHashesOfDifferentContentsAreNoHit) {
  PrefixCache cache(8, 2, BadHash);
  cache.Insert(Key(0, {1, 2}), 1);
  EXPECT_EQ(cache.Find(Key(0, {1, 3})), 0);
  EXPECT_EQ(cache.Find(Key(1, {1, 2})), 0);
  EXPECT_EQ(cache.Find(Key(0, {1, 2}, "salt")), 0);
  cache.Insert(Key(0, {1, 3}), 2);
  cache.Insert(Key(0, {1, 2}, "salt"), 3);
  cache.Insert(Key(2, {1, 2}), 4);
  EXPECT_EQ(cache.Find(Key(0, {1, 2})), 1);
  EXPECT_EQ(cache.Find(Key(0, {1, 3})), 2);
  EXPECT_EQ(cache.Find(Key(0, {1, 2}, "salt")), 3);
  EXPECT_EQ(cache.Find(Key(2, {1, 2})), 4);
  EXPECT_TRUE(cache.Release(1));
  EXPECT_EQ(cache.EvictOldest(), 1);  // from the end of the bucket's chain
  EXPECT_EQ(cache.Find(Key(0, {1, 2})), 0);
  EXPECT_EQ(cache.Find(Key(0, {1, 3})), 2);
}

TEST(PrefixCacheTest, BlockIsIdleWhenItsLastHolderLetsGo) {
  PrefixCache cache(8, 2);
  cache.Insert(Key(0, {1, 2}), 1);
  cache.Acquire(1);
  EXPECT_EQ(cache.references(1), 2);
  EXPECT_FALSE(cache.Release(1));
  EXPECT_EQ(cache.num_idle(), 0);
  EXPECT_TRUE(cache.Release(1));
  EXPECT_EQ(cache.num_idle(), 1);
  EXPECT_EQ(cache.Find(Key(0, {1, 2})), 1);
  cache.Acquire(1);
  EXPECT_EQ(cache.num_idle(), 0);
}

TEST(PrefixCacheTest, LongestIdleGoesFirstAndChildrenBeforeTheirParents) {
  PrefixCache cache(8, 1);
  cache.Insert(Key(0, {1}), 1);
  cache.Insert(Key(1, {2}), 2);
  cache.Insert(Key(0, {9}), 3);
  for (const BlockId block : {2, 1, 3}) cache.Release(block);
  // Used again: more recently than 3.
  cache.Acquire(1);
  cache.Acquire(2);
  for (const BlockId block : {2, 1}) cache.Release(block);
  EXPECT_EQ(cache.EvictOldest(), 3);
  EXPECT_EQ(cache.EvictOldest(), 2);
  EXPECT_EQ(cache.EvictOldest(), 1);
  EXPECT_EQ(cache.num_idle(), 0);
  EXPECT_FALSE(cache.Contains(1));
}

TEST(PrefixCacheTest, ABlockOfOtherTokensIsNotMarkedAsDrafted) {
  PrefixCache cache(8, 2);
  cache.Insert(Key(0, {1, 2}), 1);
  EXPECT_FALSE(cache.drafted(1));
  cache.SetDrafted(1);
  EXPECT_TRUE(cache.Release(1));
  cache.Acquire(1);
  EXPECT_TRUE(cache.drafted(1));
  EXPECT_TRUE(cache.Release(1));
  EXPECT_EQ(cache.EvictOldest(), 1);
  cache.Insert(Key(0, {3, 4}), 1);
  EXPECT_FALSE(cache.drafted(1));
}

TEST(PrefixCacheTest, MemoryIsASmallPartOfTheBlocks) {
  // The S model of docs/performance.md has 512 KiB of K and V in each.
  EXPECT_LT(PrefixCache::HostBytes(4096, 16), 4096 * 160);
}

// Random sequences with shared prefixes, against a plain map of everything that is cached.
class PrefixCacheModelTest : public testing::TestWithParam<PrefixCache::Hash> {};

TEST_P(PrefixCacheModelTest, AgreesWithAPlainMap) {
  constexpr int kBlocks = 40;
  using Content = std::tuple<BlockId, std::string, int32_t>;
  PrefixCache cache(kBlocks, 1, GetParam());
  std::mt19937 random(5);
  std::map<Content, BlockId> want;
  std::vector<BlockId> unused;
  for (BlockId block = 1; block <= kBlocks; ++block) unused.push_back(block);
  std::vector<std::vector<BlockId>> held(6);
  for (int step = 0; step < 20000; ++step) {
    std::vector<BlockId>& list = held[random() % held.size()];
    if (random() % 4 == 0) {
      while (!list.empty()) {
        cache.Release(list.back());
        list.pop_back();
      }
    } else {
      const BlockId parent = list.empty() ? 0 : list.back();
      const std::string salt = parent != 0 || random() % 2 == 0 ? "" : "salt";
      const std::vector<int32_t> tokens = {static_cast<int32_t>(random() % 3)};
      const Content content = {parent, salt, tokens[0]};
      const BlockKey key = Key(parent, tokens, salt);
      const BlockId found = cache.Find(key);
      ASSERT_EQ(found, want.count(content) > 0 ? want[content] : 0);
      if (found != 0) {
        cache.Acquire(found);
        list.push_back(found);
        continue;
      }
      if (unused.empty()) {
        if (cache.num_idle() == 0) continue;
        const BlockId gone = cache.EvictOldest();
        unused.push_back(gone);
        for (auto at = want.begin(); at != want.end();) {
          at = at->second == gone ? want.erase(at) : std::next(at);
        }
      }
      cache.Insert(key, unused.back());
      want[content] = unused.back();
      list.push_back(unused.back());
      unused.pop_back();
    }
    cache.CheckInvariants();
  }
}

INSTANTIATE_TEST_SUITE_P(Hashes, PrefixCacheModelTest,
                         testing::Values(PrefixCache::GoodHash, BadHash));

TEST(PrefixCacheDeathTest, MisuseIsABug) {
  const auto dies = testing::ExitedWithCode(70);
  EXPECT_EXIT(
      {
        PrefixCache cache(4, 1);
        cache.EvictOldest();
      },
      dies, "check failed");
  EXPECT_EXIT(
      {
        PrefixCache cache(4, 1);
        cache.Insert(Key(0, {1}), 1);
        cache.Release(1);
        cache.Release(1);
      },
      dies, "check failed");
  EXPECT_EXIT(
      {
        PrefixCache cache(4, 1);
        cache.Insert(Key(0, {1}), 1);
        cache.Insert(Key(1, {2}), 2);
        cache.Release(1);  // any holder of 2 also holds 1
        cache.EvictOldest();
      },
      dies, "num_children");
}

}  // namespace
}  // namespace bulkhead
