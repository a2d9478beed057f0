#include "memory/kv_event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

#include "memory/prefix_cache.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;

TEST(KvEventLogTest, ABatchHasTheEventsOfAStep) {
  KvEventLog log(2);
  EXPECT_EQ(log.Read(1), std::nullopt);
  log.Stored(7, 0, {1, 2});
  log.Stored(8, 7, {3, 4});
  EXPECT_EQ(log.Read(1), std::nullopt);  // the step has not ended
  log.EndBatch();
  log.EndBatch();  // nothing happened
  log.Removed(8);
  log.EndBatch();
  const KvEventBatch first = log.Read(1).value();
  EXPECT_EQ(first.number, 1);
  EXPECT_FALSE(first.cleared);
  ASSERT_EQ(first.events.size(), 2);
  EXPECT_EQ(first.events[1].hash, 8);
  EXPECT_EQ(first.events[1].parent_hash, 7);
  EXPECT_THAT(first.events[1].tokens, ElementsAre(3, 4));
  const KvEventBatch second = log.Read(2).value();
  EXPECT_EQ(second.first_event, 2);
  ASSERT_EQ(second.events.size(), 1);
  EXPECT_FALSE(second.events[0].stored);
  EXPECT_EQ(log.next_batch(), 3);
  EXPECT_EQ(log.Read(3), std::nullopt);
}

TEST(KvEventLogTest, ALongStepIsSeveralBatches) {
  KvEventLog log(1);
  for (int i = 0; i < KvEventLog::kMaxBatchEvents + 1; ++i) log.Removed(i + 1);
  EXPECT_EQ(log.Read(1).value().events.size(), KvEventLog::kMaxBatchEvents);
  EXPECT_EQ(log.Read(2), std::nullopt);
  log.EndBatch();
  EXPECT_EQ(log.Read(2).value().events.size(), 1);
}

TEST(KvEventLogTest, ALateReaderForgetsAllAndGoesOnWithWhatIsThere) {
  KvEventLog log(1);
  for (int i = 0; i < 3 * KvEventLog::kMaxEvents; ++i) {
    log.Removed(i);
    if (i % 3 == 2) log.EndBatch();
  }
  const KvEventBatch lost = log.Read(1).value();
  EXPECT_TRUE(lost.cleared);
  EXPECT_TRUE(lost.events.empty());
  uint64_t next = lost.number + 1;
  uint64_t event = 0;
  for (; next != log.next_batch(); ++next) {
    const KvEventBatch batch = log.Read(next).value();
    ASSERT_FALSE(batch.cleared);
    ASSERT_EQ(batch.number, next);
    ASSERT_EQ(batch.events.size(), 3);  // whole ones only
    if (event != 0) {
      ASSERT_EQ(batch.first_event, event);
    }
    for (const KvEvent& one : batch.events)
      ASSERT_EQ(one.hash, batch.first_event + (&one - &batch.events[0]));
    event = batch.first_event + batch.events.size();
  }
  EXPECT_EQ(event, 3 * KvEventLog::kMaxEvents);
}

TEST(KvEventLogTest, ANumberOfAnEarlierRunIsCleared) {
  KvEventLog log(1);
  log.Removed(1);
  log.EndBatch();
  const KvEventBatch cleared = log.Read(1000).value();
  EXPECT_TRUE(cleared.cleared);
  EXPECT_EQ(cleared.number, 0);
}

TEST(KvEventLogTest, ReadersAreWokenByABatchAndByTheEnd) {
  KvEventLog log(1);
  int woken = 0;
  const int reader = log.Subscribe([&] { ++woken; }).value();
  log.EndBatch();
  EXPECT_EQ(woken, 0);
  log.Removed(1);
  log.EndBatch();
  EXPECT_EQ(woken, 1);
  EXPECT_FALSE(log.closed());
  log.Close();
  EXPECT_EQ(woken, 2);
  EXPECT_TRUE(log.closed());
  log.Unsubscribe(reader);
  log.Close();
  EXPECT_EQ(woken, 2);
}

TEST(KvEventLogTest, ThereIsALimitOfReaders) {
  KvEventLog log(1);
  std::vector<int> readers;
  for (int i = 0; i < KvEventLog::kMaxReaders; ++i) readers.push_back(log.Subscribe([] {}).value());
  EXPECT_EQ(log.Subscribe([] {}), std::nullopt);
  log.Unsubscribe(readers[3]);
  EXPECT_TRUE(log.Subscribe([] {}).has_value());
}

TEST(KvEventLogTest, NothingBehindASaltedBlockIsLogged) {
  auto log = std::make_shared<KvEventLog>(1);
  PrefixCache cache(3, 1, PrefixCache::GoodHash, log);
  const std::vector<int32_t> tokens = {5};
  BlockKey salted{0, tokens};
  salted.context[0] = 1;
  cache.Insert(salted, 1);
  cache.Insert({1, tokens}, 2);
  cache.Insert({2, tokens}, 3);
  for (const BlockId block : {3, 2, 1}) cache.Release(block);
  for (int i = 0; i < 3; ++i) cache.EvictOldest();
  log->EndBatch();
  EXPECT_EQ(log->Read(1), std::nullopt);
}

// Whoever applies all events knows exactly the cache's blocks.
TEST(KvEventLogTest, EventsOfAPrefixCacheGiveItsContent) {
  constexpr int kBlocks = 12;
  auto log = std::make_shared<KvEventLog>(1);
  PrefixCache cache(kBlocks, 1, PrefixCache::GoodHash, log);
  std::mt19937 random(11);
  std::vector<BlockId> unused;
  for (BlockId block = 1; block <= kBlocks; ++block) unused.push_back(block);
  std::set<uint64_t> mirror;
  uint64_t next = 1;
  int64_t salted = 0;
  for (int step = 0; step < 2000; ++step) {
    const int32_t token = static_cast<int32_t>(random() % 40);
    const std::vector<int32_t> tokens = {token};
    BlockKey key{0, tokens};
    if (token % 7 == 0) key.context[0] = 1;
    if (cache.Find(key) == 0) {
      if (unused.empty()) unused.push_back(cache.EvictOldest());
      cache.Insert(key, unused.back());
      cache.Release(unused.back());
      unused.pop_back();
      salted += token % 7 == 0 ? 1 : 0;
    }
    if (step % 5 == 0) log->EndBatch();
    for (; const std::optional<KvEventBatch> batch = log->Read(next); ++next) {
      for (const KvEvent& event : batch->events) {
        ASSERT_TRUE(event.stored ? mirror.insert(event.hash).second
                                 : mirror.erase(event.hash) == 1);
        if (event.stored) {
          ASSERT_NE(event.tokens[0] % 7, 0);
        }
      }
    }
  }
  EXPECT_GT(salted, 10);
  EXPECT_GT(mirror.size(), 4);
  EXPECT_LE(mirror.size(), kBlocks);
}

TEST(KvEventLogTest, ReadersOnOtherThreadsSeeEveryBatchOnce) {
  KvEventLog log(4);
  std::thread writer([&] {
    for (int i = 1; i <= 2000; ++i) {
      log.Stored(i, i - 1, {i, i, i, i});
      log.EndBatch();
    }
    log.Close();
  });
  uint64_t next = 1;
  uint64_t last = 0;
  while (true) {
    const bool closed = log.closed();
    const std::optional<KvEventBatch> batch = log.Read(next);
    if (!batch.has_value()) {
      if (closed) break;
      std::this_thread::yield();
      continue;
    }
    next = batch->number + 1;
    for (const KvEvent& event : batch->events) {
      ASSERT_EQ(event.hash, last + 1);
      last = event.hash;
      ASSERT_EQ(event.tokens[3], static_cast<int32_t>(last));
    }
  }
  writer.join();
  EXPECT_EQ(last, 2000);
}

}  // namespace
}  // namespace bulkhead
