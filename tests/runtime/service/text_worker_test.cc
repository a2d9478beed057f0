#include "runtime/service/text_worker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

constexpr size_t kMax = 1000;

// A worker is declared after what its work refers to: its destructor waits for the work.

TEST(TextWorkerTest, WhatWaitsIsBoundedInBytes) {
  std::promise<void> go, done;
  TextWorker worker(kMax);
  ASSERT_TRUE(worker.Post(kMax / 2, [&] { go.get_future().wait(); }).ok());
  ASSERT_TRUE(worker.Post(kMax / 2, [&] { done.set_value(); }).ok());
  const absl::Status refused = worker.Post(1, [] { FAIL() << "dropped work ran"; });
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), reason::kQueueFull);
  EXPECT_TRUE(RetryAfter(refused).has_value());
  go.set_value();
  done.get_future().wait();
}

TEST(TextWorkerTest, OneTextOfAnySizeIsTakenWhereNothingWaits) {
  std::promise<void> go, done;
  {
    TextWorker worker(kMax);
    ASSERT_TRUE(worker.Post(2 * kMax, [&] { go.get_future().wait(); }).ok());
    EXPECT_FALSE(worker.Post(1, [] {}).ok());
    go.set_value();
    while (!worker.Post(2 * kMax, [&] { done.set_value(); }).ok()) std::this_thread::yield();
  }
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(0)), std::future_status::ready);
}

TEST(TextWorkerTest, WorkThatPostsItsMessageAgainFindsItselfNotInTheWay) {
  std::promise<absl::Status> again, later;
  std::promise<void> go;
  TextWorker worker(kMax);
  ASSERT_TRUE(worker
                  .Post(kMax,
                        [&] {
                          again.set_value(worker.Post(kMax, [&] { go.get_future().wait(); }));
                          later.set_value(worker.Post(1, [] {}));
                        })
                  .ok());
  EXPECT_TRUE(again.get_future().get().ok());
  EXPECT_EQ(ReasonOf(later.get_future().get()), reason::kQueueFull);
  go.set_value();
}

TEST(TextWorkerTest, AGrammarCountsOnceForAllThatWaitForIt) {
  constexpr size_t kGrammars = 2;
  std::promise<void> go, done;
  TextWorker worker(kGrammars * TextWorker::kGrammarBytes + 10);
  ASSERT_TRUE(worker.Post(1, [&] { go.get_future().wait(); }).ok());
  for (size_t grammar = 1; grammar <= kGrammars; ++grammar)
    EXPECT_TRUE(worker
                    .Post(
                        1, [] {}, grammar)
                    .ok());
  EXPECT_EQ(ReasonOf(worker.Post(
                1, [] {}, kGrammars + 1)),
            reason::kQueueFull);
  EXPECT_TRUE(worker
                  .Post(
                      1, [] {}, 1)
                  .ok());
  EXPECT_TRUE(worker.Post(1, [&] { done.set_value(); }).ok());
  go.set_value();
  done.get_future().wait();
  while (!worker
              .Post(
                  1, [] {}, kGrammars + 1)
              .ok())
    std::this_thread::yield();
}

}  // namespace
}  // namespace bulkhead
