#include "launcher/clients/latency_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "launcher/group/load_histograms.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::Histogram Of(std::initializer_list<double> bounds, std::initializer_list<uint64_t> counts) {
  v1::Histogram histogram;
  for (const double bound : bounds) histogram.add_bounds(bound);
  for (const uint64_t count : counts) histogram.add_counts(count);
  return histogram;
}

TEST(LatencyTableTest, ShowsWhatWasCountedAndNothingElse) {
  v1::RequestHistograms histograms;
  EXPECT_EQ(LatencyTable(histograms), "");
  *histograms.mutable_time_to_first_token_seconds() = Of({0.1, 1}, {0, 0, 0});
  EXPECT_EQ(LatencyTable(histograms), "");
  *histograms.mutable_request_prompt_tokens() = Of({10}, {1});  // one bucket is missing
  EXPECT_EQ(LatencyTable(histograms), "");
  *histograms.mutable_inter_token_latency_seconds() = Of({0.1, 1}, {90, 0, 10});
  histograms.mutable_inter_token_latency_seconds()->set_sum(25);
  const std::string table = LatencyTable(histograms);
  EXPECT_THAT(table,
              HasSubstr("between tokens    100  250.0 ms  <= 100.0 ms  <= 100.0 ms  > 1.00 s"));
  EXPECT_THAT(table, Not(HasSubstr("queue")));
}

TEST(LatencyTableTest, TheEnginesFiguresArriveWhole) {
  EngineMetrics metrics(100);
  metrics.first_token_seconds.Observe(0.05);
  metrics.first_token_seconds.Observe(1e6);
  metrics.request_prompt_tokens.Observe(7);
  const v1::RequestHistograms all = HistogramsOf(metrics);
  const v1::Histogram& first = all.time_to_first_token_seconds();
  EXPECT_EQ(CountOf(first), 2u);
  EXPECT_EQ(first.counts(first.bounds_size()), 1u);
  EXPECT_DOUBLE_EQ(first.sum(), 1e6 + 0.05);
  EXPECT_EQ(CountOf(all.request_prompt_tokens()), 1u);
  EXPECT_EQ(CountOf(all.request_queue_time_seconds()), 0u);
  EXPECT_GT(all.request_queue_time_seconds().bounds_size(), 3);
}

}  // namespace
}  // namespace bulkhead
