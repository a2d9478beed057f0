#include "memory/snapshot_pool.h"

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

TEST(SnapshotPoolTest, GivesFreeOnesThenTheLeastRecentlyUsed) {
  SnapshotPool pool(2);
  const int a = pool.Take();
  const int b = pool.Take();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.Take(), -1);  // both are being written
  pool.Attach(a, 5);
  pool.Attach(b, 6);
  EXPECT_EQ(pool.Of(5), a);
  pool.Pin(a);
  pool.Unpin(a);
  EXPECT_EQ(pool.Take(), b);
  EXPECT_EQ(pool.Of(6), -1);
  pool.Return(b);
  EXPECT_EQ(pool.Take(), b);
}

TEST(SnapshotPoolTest, WhatIsPinnedStays) {
  SnapshotPool pool(1);
  pool.Attach(pool.Take(), 3);
  const int kept = pool.Of(3);
  pool.Pin(kept);
  pool.Pin(kept);
  pool.Unpin(kept);
  EXPECT_EQ(pool.Take(), -1);
  pool.Drop(3);
  EXPECT_EQ(pool.Of(3), kept);
  pool.Unpin(kept);
  pool.Drop(3);
  EXPECT_EQ(pool.Of(3), -1);
}

TEST(SnapshotPoolTest, ABlockHasOneSnapshot) {
  SnapshotPool pool(2);
  const int first = pool.Take();
  const int second = pool.Take();
  pool.Attach(first, 9);
  pool.Attach(second, 9);
  EXPECT_EQ(pool.Of(9), first);
  EXPECT_EQ(pool.Take(), second);
}

TEST(SnapshotPoolDeathTest, MisuseIsABug) {
  SnapshotPool pool(1);
  EXPECT_DEATH(pool.Attach(0, 1), "");
  EXPECT_DEATH(pool.Unpin(0), "");
}

}  // namespace
}  // namespace bulkhead
