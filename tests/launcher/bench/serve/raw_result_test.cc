#include "launcher/bench/serve/raw_result.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::json;

RequestRecord RequestOf(int index) {
  RequestRecord request;
  request.index = index;
  request.scheduled_s = 1;
  request.sent_s = 1.1;
  request.arrivals = {{1.5, 1}, {1.8, 2}};
  request.end_s = 2;
  request.outcome = RequestOutcome::kCompleted;
  request.server = ServerTimes{0.005, 0.01, 0.08, 0.04, 1, 0.03, 0.002, std::nullopt};
  return request;
}

TEST(RawResultTest, EveryRequestIsALine) {
  RunRecord run;
  run.requests = {RequestOf(0), RequestOf(1), RequestRecord()};
  run.requests[1].outcome = RequestOutcome::kFailed;
  run.requests[1].code = "RESOURCE_EXHAUSTED";
  run.requests[1].reason = "QUEUE_FULL";
  run.requests[1].message = "the queue is \"full\"\xff";
  std::istringstream lines(RequestsJsonLines({run}));
  std::vector<json> requests;
  for (std::string line; std::getline(lines, line);) requests.push_back(json::parse(line));
  ASSERT_EQ(requests.size(), 3);
  EXPECT_EQ(requests[0]["outcome"], "completed");
  EXPECT_EQ(requests[0]["sent_s"], 1.1);
  EXPECT_EQ(requests[0]["arrivals"], json({{1.5, 1}, {1.8, 2}}));
  EXPECT_FALSE(requests[0].contains("error"));
  EXPECT_EQ(requests[0]["server_ms"]["prepare"], 5);
  EXPECT_EQ(requests[0]["server_ms"]["prefill"], 80);
  EXPECT_EQ(requests[0]["server_ms"]["collective"], 30);
  EXPECT_FALSE(requests[0]["server_ms"].contains("detokenise"));  // the server did not say
  EXPECT_EQ(requests[1]["error"]["reason"], "QUEUE_FULL");
  EXPECT_EQ(requests[2]["outcome"], "unfinished");
  EXPECT_TRUE(requests[2]["sent_s"].is_null());
}

TEST(RawResultTest, TheRunIsToldAsItWasAskedForAndAsTheServerSaidIt) {
  RawResult result;
  result.options.arrivals.request_rate = std::numeric_limits<double>::infinity();
  result.options.goodput.ttft_ms = 1000;
  result.options.args = {"--request-rate", "inf"};
  result.runs.resize(1);
  result.runs[0].duration_s = 12;
  result.server = ServerFacts();
  result.server->model.set_served_model_name("tide");
  result.server->server.set_num_kv_blocks(uint64_t{1} << 40);
  const json null = json::parse(RunJson(RawResult()));
  EXPECT_TRUE(null["server"].is_null());
  EXPECT_TRUE(null["load"].is_null());
  LoadSample sample;
  sample.load.set_num_kv_blocks_used(7);
  result.samples = {sample, sample};
  const json run = json::parse(RunJson(result));
  EXPECT_EQ(run["workload"]["request_rate"], "inf");
  EXPECT_EQ(run["goodput"]["ttft_ms"], 1000);
  EXPECT_TRUE(run["goodput"]["tpot_ms"].is_null());
  EXPECT_EQ(run["client"]["args"], json({"--request-rate", "inf"}));
  EXPECT_EQ(run["durations_s"], json::array({12.0}));
  EXPECT_EQ(run["server"]["model"]["served_model_name"], "tide");
  EXPECT_EQ(run["server"]["info"]["num_kv_blocks"], "1099511627776");
  EXPECT_EQ(run["server"]["ranks"]["binding_rank"], 0);  // also what is 0
  EXPECT_EQ(run["load"]["samples"][1]["kv_blocks_used"], 7);
  EXPECT_EQ(run["load"]["after"]["num_kv_blocks_used"], "7");
}

}  // namespace
}  // namespace bulkhead
