// The metrics' definitions, on traces made by hand.
#include "launcher/bench/serve/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bulkhead {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr double kTolerance = 1e-9;

// Due at 1 s, sent at 1.1 s; tokens: one at 1.5 s, three at 1.8 s, one at 2.0 s; ended at 2.01 s.
RequestRecord OneRequest() {
  RequestRecord request;
  request.scheduled_s = 1.0;
  request.sent_s = 1.1;
  request.end_s = 2.01;
  request.outcome = RequestOutcome::kCompleted;
  request.prompt_tokens = 40;
  request.completion_tokens = 5;
  request.arrivals = {{1.5, 1}, {1.8, 3}, {2.0, 1}};
  request.server = ServerTimes{0.05, 0.3, 0.5, 2, std::nullopt, std::nullopt, std::nullopt};
  return request;
}

RunRecord RunOf(std::vector<RequestRecord> requests, double duration_s) {
  RunRecord run;
  for (size_t i = 0; i < requests.size(); ++i) requests[i].index = static_cast<int>(i);
  run.requests = std::move(requests);
  run.duration_s = duration_s;
  return run;
}

TEST(Summary, LatenciesCountFromTheScheduledArrivalAndFromSending) {
  const BenchSummary summary = Summarize({RunOf({OneRequest()}, 2.01)}, {});
  const Latencies& latencies = summary.latencies;
  EXPECT_NEAR(latencies.ttft.mean.value, 500, kTolerance);
  EXPECT_NEAR(latencies.ttft_from_send.mean.value, 400, kTolerance);
  EXPECT_NEAR(latencies.e2el.mean.value, 1000, kTolerance);
  EXPECT_NEAR(latencies.e2el_from_send.mean.value, 900, kTolerance);
  EXPECT_NEAR(latencies.send_delay.mean.value, 100, kTolerance);
}

TEST(Summary, AMessageOfSeveralTokensIsSeveralTokens) {
  const RequestRecord request = OneRequest();
  EXPECT_EQ(request.received_tokens(), 5);
  EXPECT_THAT(InterTokenGaps(request),
              ElementsAre(DoubleNear(0.1, kTolerance), DoubleNear(0.1, kTolerance),
                          DoubleNear(0.1, kTolerance), DoubleNear(0.2, kTolerance)));
  EXPECT_NEAR(*TimePerOutputToken(request), 0.5 / 4, kTolerance);
  const Latencies latencies = Summarize({RunOf({request}, 2.01)}, {}).latencies;
  EXPECT_EQ(latencies.itl.count, 4);
  EXPECT_NEAR(latencies.itl.mean.value, 125, kTolerance);
  EXPECT_EQ(latencies.chunk_gap.count, 2);  // vLLM's: one per message
  EXPECT_NEAR(latencies.chunk_gap.mean.value, 250, kTolerance);
}

TEST(Summary, OneTokenHasNoTimePerOutputToken) {
  RequestRecord request = OneRequest();
  request.arrivals = {{1.5, 1}};
  EXPECT_FALSE(TimePerOutputToken(request).has_value());
  const BenchSummary summary = Summarize({RunOf({request}, 2.01)}, {});
  EXPECT_EQ(summary.latencies.tpot.count, 0);
  EXPECT_EQ(summary.latencies.ttft.count, 1);
  request.arrivals.clear();  // an answer without a token ends with its status
  const BenchSummary none = Summarize({RunOf({request}, 2.01)}, {});
  EXPECT_EQ(none.latencies.ttft.count, 0);
  EXPECT_NEAR(none.latencies.e2el.mean.value, 1010, kTolerance);
}

TEST(Summary, ThroughputIsOverTheWholeRun) {
  RequestRecord second = OneRequest();
  second.scheduled_s = 2;
  second.sent_s = 2;
  second.end_s = 4;
  second.arrivals = {{3, 1}, {4, 1}};
  const BenchSummary summary = Summarize({RunOf({OneRequest(), second}, 4)}, {});
  EXPECT_EQ(summary.completed, 2);
  EXPECT_EQ(summary.input_tokens, 80);
  EXPECT_EQ(summary.output_tokens, 7);
  EXPECT_DOUBLE_EQ(summary.throughput.duration_s, 4);
  EXPECT_DOUBLE_EQ(summary.throughput.requests_per_s.value, 0.5);
  EXPECT_DOUBLE_EQ(summary.throughput.output_tokens_per_s.value, 7 / 4.0);
  EXPECT_DOUBLE_EQ(summary.throughput.total_tokens_per_s.value, 87 / 4.0);
  // Seconds since the first was sent, at 1.1: [1.1, 2.1) holds five tokens.
  EXPECT_DOUBLE_EQ(summary.peak_tokens_per_s, 5);
  EXPECT_EQ(summary.peak_concurrency, 1);  // one ended when the other was sent
}

TEST(Summary, FailuresAndWhatHadNoEndDoNotCountAsAnswers) {
  RequestRecord failed = OneRequest();
  failed.outcome = RequestOutcome::kFailed;
  failed.code = "RESOURCE_EXHAUSTED";
  failed.reason = "QUEUE_FULL";
  RequestRecord unfinished = OneRequest();
  unfinished.outcome = RequestOutcome::kUnfinished;
  RequestRecord unsent;
  const BenchSummary summary =
      Summarize({RunOf({OneRequest(), failed, failed, unfinished, unsent}, 3)}, {});
  EXPECT_EQ(summary.completed, 1);
  EXPECT_EQ(summary.failed, 2);
  EXPECT_EQ(summary.unfinished, 2);
  EXPECT_EQ(summary.output_tokens, 5);
  EXPECT_EQ(summary.latencies.ttft.count, 1);
  EXPECT_THAT(summary.failures_by_code, ElementsAre(Pair("RESOURCE_EXHAUSTED", 2)));
  EXPECT_THAT(summary.failures_by_reason, ElementsAre(Pair("QUEUE_FULL", 2)));
}

TEST(Summary, AGoodRequestKeepsEveryLimitFromItsScheduledArrival) {
  SummaryOptions options;
  options.goodput.ttft_ms = 450;  // 400 from sending, 500 from the scheduled arrival
  EXPECT_EQ(Summarize({RunOf({OneRequest()}, 2)}, options).good, 0);
  options.goodput.ttft_ms = 500.001;
  options.goodput.tpot_ms = 125.001;
  options.goodput.e2el_ms = 1000.001;
  const BenchSummary good = Summarize({RunOf({OneRequest()}, 4)}, options);
  EXPECT_EQ(good.good, 1);
  EXPECT_DOUBLE_EQ(*good.throughput.good_requests_per_s, 0.25);
  options.goodput.tpot_ms = 124;
  EXPECT_EQ(Summarize({RunOf({OneRequest()}, 2)}, options).good, 0);
  EXPECT_FALSE(Summarize({RunOf({OneRequest()}, 2)}, {}).throughput.good_requests_per_s);
}

TEST(Summary, TheTimeSplitLeavesTheRestToTheNetwork) {
  const BenchSummary summary = Summarize({RunOf({OneRequest()}, 2.01)}, {});
  const TimeSplit& split = summary.split;
  EXPECT_EQ(split.count, 1);
  EXPECT_NEAR(split.send_delay.value, 100, kTolerance);
  EXPECT_NEAR(split.queue.value, 50, kTolerance);
  EXPECT_NEAR(split.prefill.value, 300, kTolerance);
  EXPECT_NEAR(split.decode.value, 500, kTolerance);
  EXPECT_NEAR(split.rest.value, 60, kTolerance);  // 910 from sending to the end - 850
  EXPECT_EQ(summary.preemptions, 2);
}

TEST(Summary, PrefillAndDecodeAreCutIntoWhatTheyWereSpentOn) {
  RequestRecord request = OneRequest();
  request.server->collective_s = 0.1;
  request.server->sampling_s = 0.02;
  const TimeSplit split = Summarize({RunOf({request}, 2.01)}, {}).split;
  ASSERT_TRUE(split.collective.has_value());
  EXPECT_NEAR(split.collective->value, 100, kTolerance);
  ASSERT_TRUE(split.sampling.has_value());
  EXPECT_NEAR(split.sampling->value, 20, kTolerance);
  EXPECT_FALSE(split.detokenise.has_value());  // the server did not say
  EXPECT_NEAR(split.computing.value, 680, kTolerance);
}

// One request every 0.1 s for 10 s; each answers after a second with one token.
RunRecord SteadyRun(int run) {
  std::vector<RequestRecord> requests(100);
  for (int i = 0; i < 100; ++i) {
    requests[i].run = run;
    requests[i].scheduled_s = 0.1 * i;
    requests[i].sent_s = 0.1 * i;
    requests[i].end_s = 0.1 * i + 1;
    requests[i].arrivals = {{0.1 * i + 1, 1}};
    requests[i].outcome = RequestOutcome::kCompleted;
  }
  return RunOf(std::move(requests), 10.9);
}

TEST(Summary, TheSteadyWindowIsFromTheFirstEndToTheLastArrival) {
  const BenchSummary summary = Summarize({SteadyRun(0)}, {});
  ASSERT_TRUE(summary.steady.has_value());
  EXPECT_NEAR(summary.steady->windows[0].begin_s, 1, kTolerance);
  EXPECT_NEAR(summary.steady->windows[0].end_s, 9.9, kTolerance);
  EXPECT_NEAR(summary.steady->requests, 89, 1);
  // 10 tokens/s once full, where the whole run has 100 in 10.9 s.
  EXPECT_NEAR(summary.steady->throughput.output_tokens_per_s.value, 10, 0.15);
  EXPECT_NEAR(summary.throughput.output_tokens_per_s.value, 100 / 10.9, kTolerance);
}

TEST(Summary, WhatComesAllAtOnceHasNoSteadyWindow) {
  RunRecord run = SteadyRun(0);
  for (RequestRecord& request : run.requests) request.scheduled_s = *(request.sent_s = 0);
  EXPECT_FALSE(Summarize({run}, {}).steady.has_value());
}

TEST(Summary, RunsAreCountedTogetherAndShownApart) {
  RunRecord slow = SteadyRun(1);
  for (RequestRecord& request : slow.requests) {
    request.arrivals[0].time_s += 1;
    request.end_s += 1;
  }
  slow.duration_s += 1;
  const BenchSummary summary = Summarize({SteadyRun(0), slow}, {});
  EXPECT_EQ(summary.completed, 200);
  EXPECT_NEAR(summary.throughput.duration_s, 22.8, kTolerance);
  EXPECT_NEAR(summary.latencies.ttft.mean.value, 1500, kTolerance);
  ASSERT_EQ(summary.runs.size(), 2);
  EXPECT_NEAR(summary.runs[0].mean_ttft_ms, 1000, kTolerance);
  EXPECT_NEAR(summary.runs[1].mean_ttft_ms, 2000, kTolerance);
  EXPECT_NEAR(summary.peak_concurrency, 20, 1);  // where an end meets a begin, rounding decides
}

TEST(Summary, NothingCompletedIsNoReasonToStumble) {
  const BenchSummary summary = Summarize({RunOf({RequestRecord()}, 0)}, {});
  EXPECT_EQ(summary.completed, 0);
  EXPECT_EQ(summary.unfinished, 1);
  EXPECT_EQ(summary.throughput.requests_per_s.value, 0);
  EXPECT_EQ(Summarize({}, {}).completed, 0);
}

}  // namespace
}  // namespace bulkhead
