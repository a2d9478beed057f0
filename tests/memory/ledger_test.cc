#include "memory/ledger.h"

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

TEST(LedgerTest, WhatIsClaimedIsTakenAndGivenBack) {
  const auto device = NewHostDevice(1000);
  {
    MemoryLedger ledger(*device);
    ledger.Claim(MemoryCategory::kWeights, 100);
    ledger.Claim(MemoryCategory::kKv, 200);
    ledger.Claim(MemoryCategory::kWorkspace, 10);
    ledger.Claim(MemoryCategory::kCommunication, 50);
    const auto weights = ledger.Take(MemoryCategory::kWeights, 100);
    ASSERT_TRUE(weights.ok()) << weights.status();
    const auto both = ledger.TakeTogether(MemoryCategory::kWorkspace, 10, MemoryCategory::kKv, 200);
    ASSERT_TRUE(both.ok()) << both.status();
    ASSERT_TRUE(ledger.TakeMapped(MemoryCategory::kCommunication, 50).ok());
    EXPECT_EQ(device->allocated_bytes(), 360);
    EXPECT_EQ(ledger.claimed_bytes(), 360);
    ledger.Seal();
    for (int64_t i = 0; i < weights->bytes(); ++i)
      EXPECT_EQ(static_cast<int>(weights->data()[i]), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(both->data()) % 64, 0U);
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
}

TEST(LedgerTest, TheDevicesCapacityIsARefusalThatNamesTheTerm) {
  const auto device = NewHostDevice(1000);
  MemoryLedger ledger(*device);
  ledger.Claim(MemoryCategory::kKv, 1001);
  const auto kv = ledger.Take(MemoryCategory::kKv, 1001);
  EXPECT_EQ(kv.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(kv.status().message().find("kv"), std::string::npos);
  MemoryLedger mapped(*device);
  mapped.Claim(MemoryCategory::kCommunication, 2000);
  EXPECT_EQ(mapped.TakeMapped(MemoryCategory::kCommunication, 2000).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(LedgerTest, AtTheCapacityFitsAndAByteMoreDoesNot) {
  const auto device = NewHostDevice(4096);
  {
    const auto all = device->Allocate(4096);
    ASSERT_TRUE(all.ok());
    EXPECT_FALSE(device->Allocate(1).ok());
  }
  EXPECT_TRUE(device->Allocate(4096).ok());
}

TEST(LedgerTest, AfterTheSealNothingIsGivenAndRefusalsAreCounted) {
  const auto device = NewHostDevice(0);
  MemoryLedger ledger(*device);
  ledger.Seal();
  if (BH_DEBUG_BUILD != 0) GTEST_SKIP() << "fatal in debug builds";
  EXPECT_EQ(ledger.Take(MemoryCategory::kKv, 8).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ledger.refused_after_seal(), 1);
  EXPECT_EQ(device->allocated_bytes(), 0);
}

TEST(LedgerDeathTest, TakingMoreThanClaimedOrSealingLessIsABug) {
  EXPECT_EXIT(
      {
        const auto device = NewHostDevice(0);
        MemoryLedger ledger(*device);
        ledger.Claim(MemoryCategory::kKv, 7);
        (void)ledger.Take(MemoryCategory::kKv, 8);
      },
      testing::ExitedWithCode(70), "check failed");
  EXPECT_EXIT(
      {
        const auto device = NewHostDevice(0);
        MemoryLedger ledger(*device);
        ledger.Claim(MemoryCategory::kKv, 7);
        ledger.Seal();
      },
      testing::ExitedWithCode(70), "check failed");
}

TEST(BumpAllocatorTest, APlanAndARunAreLaidOutAlike) {
  alignas(64) std::byte memory[1024];
  BumpAllocator plan;
  BumpAllocator run(memory);
  for (const int64_t bytes : {1, 64, 65, 0, 3}) {
    EXPECT_EQ(plan.Next(bytes), nullptr);
    EXPECT_EQ(run.Next(bytes), memory + plan.used_bytes() - (bytes + 63) / 64 * 64);
  }
  EXPECT_EQ(plan.used_bytes(), run.used_bytes());
  EXPECT_EQ(plan.used_bytes(), 64 + 64 + 128 + 64);
}

}  // namespace
}  // namespace bulkhead
