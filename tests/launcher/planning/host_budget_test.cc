#include "launcher/planning/host_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/flags/options.h"

namespace bulkhead {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

Capacity Planned(int max_num_seqs, int max_model_len) {
  Capacity capacity;
  capacity.fits = true;
  capacity.limits = {max_num_seqs, max_model_len, 2048, 16, 10000};
  return capacity;
}

int64_t BytesOf(const HostBudget& budget, HostPart part) {
  return budget.part_bytes[static_cast<int>(part)];
}

TEST(HostBudgetTest, TotalIsTheSumOfItsPartsAndGrowthLeavesOutWhatIsThereAtReady) {
  const HostBudget budget = HostBudgetAt(0, {.tokenizer_file_bytes = 9 * kMiB}, Planned(64, 2048));
  int64_t sum = 0;
  for (const int64_t bytes : budget.part_bytes) {
    EXPECT_GT(bytes, 0);
    sum += bytes;
  }
  EXPECT_EQ(budget.total_bytes(), sum);
  EXPECT_EQ(budget.quotas.total_bytes, sum - budget.standing_bytes());
  EXPECT_GE(budget.standing_bytes(), BytesOf(budget, HostPart::kTokenizer) +
                                         BytesOf(budget, HostPart::kPrefixCache) + kRank0HeapBytes);
  EXPECT_TRUE(budget.fits());  // available memory unknown
}

TEST(HostBudgetTest, EveryStepIsSmallerAndStillTakesAPromptAndItsAnswer) {
  for (const int len : {64, 2048, 131072, 1 << 20}) {
    const Capacity capacity = Planned(8, len);
    int64_t before = std::numeric_limits<int64_t>::max();
    for (int step = 0; step < kNumHostSteps; ++step) {
      const HostBudget budget = HostBudgetAt(step, {}, capacity);
      EXPECT_LT(budget.total_bytes(), before) << len << " step " << step;
      before = budget.total_bytes();
      const HostQuotas& quotas = budget.quotas;
      EXPECT_GE(quotas.message_bytes, 16 * int64_t{len});
      EXPECT_GE(quotas.grpc_bytes, 4 * quotas.message_bytes);
      EXPECT_GE(quotas.request_bytes, 2 * quotas.message_bytes);
      EXPECT_GE(quotas.text_bytes, quotas.message_bytes);
      EXPECT_GE(quotas.answer_bytes, 12 * 21 * int64_t{len});
      EXPECT_GE(quotas.max_open_calls, budget.max_num_queued_reqs + 8);
      EXPECT_GE(quotas.max_connections, 64);
    }
  }
}

TEST(HostBudgetTest, ConnectionsOfHttpArePlannedWhereThereAreAny) {
  const Capacity capacity = Planned(8, 2048);
  EXPECT_EQ(HostBudgetAt(0, {}, capacity).quotas.max_http_connections, 0);
  for (int step = 0; step < kNumHostSteps; ++step) {
    const HostBudget with = HostBudgetAt(step, {.http = true}, capacity);
    EXPECT_GE(with.quotas.max_http_connections, 128);
    EXPECT_EQ(with.total_bytes() - HostBudgetAt(step, {}, capacity).total_bytes(),
              with.quotas.max_http_connections * kHttpConnectionBytes + 8 * kMiB +
                  with.quotas.metrics_bytes * (kMaxScrapes + kHeldPerMetricsByte));
  }
}

TEST(HostBudgetTest, TlsAndKeysArePlannedForEveryConnection) {
  const Capacity capacity = Planned(8, 2048);
  for (int step = 0; step < kNumHostSteps; ++step) {
    const HostRequest request = {.http = true, .metrics_port = true, .tls = true};
    const HostBudget with = HostBudgetAt(step, request, capacity);
    const HostQuotas& quotas = with.quotas;
    EXPECT_LE(quotas.max_http_connections, 1024);
    const int64_t connections =
        quotas.max_connections + quotas.max_http_connections + kMetricsConnections;
    const HostBudget plain = HostBudgetAt(step, {.http = true, .metrics_port = true}, capacity);
    const int64_t fewer = plain.quotas.max_http_connections - quotas.max_http_connections;
    EXPECT_EQ(with.total_bytes() - plain.total_bytes(),
              (connections + connections / 2) * kTlsConnectionBytes - fewer * kHttpConnectionBytes);
    EXPECT_EQ(HostBudgetAt(step, {.access_control = true}, capacity).total_bytes() -
                  HostBudgetAt(step, {}, capacity).total_bytes(),
              quotas.max_connections * kHeaderReaderBytes);
  }
}

TEST(HostBudgetTest, AnswersOfMetricsArePlannedForEachPortThatGivesThem) {
  const Capacity capacity = Planned(8, 2048);
  EXPECT_EQ(HostBudgetAt(0, {}, capacity).quotas.metrics_bytes, 0);
  const HostBudget with = HostBudgetAt(0, {.metrics_port = true}, capacity);
  EXPECT_GT(with.quotas.metrics_bytes, 0);
  const int64_t answers = with.quotas.metrics_bytes * (kMaxScrapes + kHeldPerMetricsByte);
  EXPECT_EQ(with.total_bytes() - HostBudgetAt(0, {}, capacity).total_bytes(),
            kMetricsConnections * kHttpConnectionBytes + answers);
  EXPECT_EQ(HostBudgetAt(0, {.http = true, .metrics_port = true}, capacity).total_bytes() -
                HostBudgetAt(0, {.http = true}, capacity).total_bytes(),
            kMetricsConnections * kHttpConnectionBytes + answers);
}

TEST(HostBudgetTest, LargestQuotasThatFitAreTaken) {
  const Capacity capacity = Planned(64, 2048);
  const int64_t full = HostBudgetAt(0, {}, capacity).total_bytes();
  EXPECT_EQ(FitHostBudget({}, capacity, full).step, 0);
  EXPECT_EQ(FitHostBudget({}, capacity, full - 1).step, 1);
  EXPECT_EQ(FitHostBudget({}, capacity, std::nullopt).step, 0);
  const HostBudget least = FitHostBudget({}, capacity, 1);
  EXPECT_EQ(least.step, kNumHostSteps - 1);
  EXPECT_FALSE(least.fits());
}

TEST(HostBudgetTest, ASmallHostServesTheSample) {
  // 512 MiB with all defaults, and 700 MiB of which the ranks may use 200.
  EXPECT_LT(HostBudgetAt(kNumHostSteps - 1, {}, Planned(64, 2048)).total_bytes(), 200 * kMiB);
  EXPECT_TRUE(FitHostBudget({}, Planned(64, 2048), 500 * kMiB).fits());
  // 64 answers of 2048 tokens with 20 log probabilities, in a third of 1 GiB.
  const HostBudget budget = FitHostBudget({}, Planned(64, 2048), 330 * kMiB);
  EXPECT_TRUE(budget.fits());
  EXPECT_GE(budget.quotas.answer_bytes, int64_t{64} * 2048 * (20 * 12 + 12 + 16));
}

TEST(HostBudgetTest, AQueueThatIsGivenIsKeptAndOthersGiveWay) {
  const Capacity capacity = Planned(4, 2048);
  const HostRequest given{.max_num_queued_reqs = 4000};
  for (int step = 0; step < kNumHostSteps; ++step) {
    const HostBudget budget = HostBudgetAt(step, given, capacity);
    EXPECT_EQ(budget.max_num_queued_reqs, 4000);
    EXPECT_GE(budget.quotas.max_open_calls, 4004);
  }
  EXPECT_LT(HostBudgetAt(3, {}, capacity).max_num_queued_reqs, 1024);
  // Every waiting request has a call, and calls are capped.
  const HostRequest absurd{.max_num_queued_reqs = 1 << 20};
  EXPECT_LT(BytesOf(HostBudgetAt(0, absurd, capacity), HostPart::kQueue), 512 * kMiB);
}

TEST(HostBudgetTest, WithoutPrefixCachingThereIsNoIndex) {
  const Capacity capacity = Planned(4, 2048);
  EXPECT_EQ(BytesOf(HostBudgetAt(0, {.prefix_caching = false}, capacity), HostPart::kPrefixCache),
            0);
  EXPECT_GT(BytesOf(HostBudgetAt(0, {}, capacity), HostPart::kPrefixCache), 0);
}

TEST(HostBudgetTest, EveryRankOfTheHostHasAHeap) {
  const Capacity capacity = Planned(4, 2048);
  EXPECT_EQ(HostBudgetAt(0, {.ranks_on_host = 3}, capacity).total_bytes() -
                HostBudgetAt(0, {}, capacity).total_bytes(),
            2 * kRankHeapBytes);
}

TEST(HostBudgetTest, ARequestThatWaitsMayHaveBeenResumedOrPreempted) {
  const Capacity capacity = Planned(4, 2048);
  const auto queue_bytes = [&](int max_num_queued_reqs) {
    return BytesOf(HostBudgetAt(0, {.max_num_queued_reqs = max_num_queued_reqs}, capacity),
                   HostPart::kQueue);
  };
  EXPECT_EQ(queue_bytes(11) - queue_bytes(10),
            kRequestBytes + kTextStreamBytes + 4 * int64_t{2048});
}

TEST(HostBudgetTest, TheLeastThatTheCommandLineNamesIsThatOfTheSmallestModel) {
  Capacity capacity;
  capacity.limits = {
      .max_num_seqs = 1, .max_model_len = 2, .max_num_batched_tokens = 1, .block_tokens = 16};
  const HostRequest request{.max_num_queued_reqs = 1, .prefix_caching = false};
  const int64_t least = HostBudgetAt(kNumHostSteps - 1, request, capacity).total_bytes();
  EXPECT_EQ(kMinHostMiB, (least + kMiB - 1) / kMiB);
}

}  // namespace
}  // namespace bulkhead
