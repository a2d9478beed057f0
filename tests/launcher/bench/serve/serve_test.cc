// A whole measurement against a server in this process.
#include "launcher/bench/serve/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "base/exit_code.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "launcher/bench/serve/load_generator.h"
#include "tests/launcher/local_server.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

class FakeGeneration : public v1::Generation::Service {
 public:
  std::atomic<bool> gone{false};

  grpc::Status GenerateStream(grpc::ServerContext*, const v1::GenerateRequest* request,
                              grpc::ServerWriter<v1::GenerateEvent>* writer) override {
    if (gone) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "rank 1 was lost");
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++salts_[request->cache_salt()];
    }
    v1::GenerateEvent event;
    event.mutable_delta()->add_tokens()->set_id(1);
    writer->Write(event);
    event.mutable_finished()->set_reason(v1::FINISH_REASON_MAX_TOKENS);
    writer->Write(event);
    return grpc::Status::OK;
  }
  std::map<std::string, int> salts() {
    std::lock_guard<std::mutex> lock(mutex_);
    return salts_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> salts_;
};

class FakeControl : public v1::Control::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override {
    info->set_max_model_len(64);
    return grpc::Status::OK;
  }
  grpc::Status GetModelInfo(grpc::ServerContext*, const v1::GetModelInfoRequest*,
                            v1::ModelInfo* info) override {
    info->set_served_model_name("tide");
    info->set_vocab_size(100);
    return grpc::Status::OK;
  }
  grpc::Status GetRankTable(grpc::ServerContext*, const v1::GetRankTableRequest*,
                            v1::RankTable*) override {
    return grpc::Status::OK;
  }
  grpc::Status GetLoad(grpc::ServerContext*, const v1::GetLoadRequest*,
                       v1::LoadInfo* load) override {
    load->set_num_kv_blocks(9);
    return grpc::Status::OK;
  }
};

int Count(const RawResult& result, RequestOutcome outcome) {
  int count = 0;
  for (const RunRecord& run : result.runs) {
    for (const RequestRecord& request : run.requests) count += request.outcome == outcome ? 1 : 0;
  }
  return count;
}

class MeasureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.target = server_.target();
    options_.self_check = false;
    options_.progress = false;
    options_.max_concurrency = 2;
    options_.dataset.num_prompts = 6;
    options_.dataset.input_len = 5;
    options_.dataset.output_len = 1;
    options_.num_warmups = 3;
  }

  FakeGeneration generation_;
  FakeControl control_;
  LocalServer server_{{&generation_, &control_}};
  ServeBenchOptions options_;
  BenchStop stop_;
};

TEST_F(MeasureTest, WarmsUpRunsAndRepeats) {
  options_.repeats = 2;
  const auto result = Measure(options_, &stop_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Count(*result, RequestOutcome::kCompleted), 12);
  EXPECT_EQ(result->runs.size(), 2);
  EXPECT_EQ(result->server->model.served_model_name(), "tide");
  EXPECT_EQ(result->samples.back().load.num_kv_blocks(), 9);
  EXPECT_FALSE(result->interrupted);
  // Warm-up and runs find nothing of each other in the prefix cache.
  std::multiset<int> counts;
  for (const auto& [salt, count] : generation_.salts()) {
    EXPECT_FALSE(salt.empty());
    counts.insert(count);
  }
  EXPECT_EQ(counts, std::multiset<int>({3, 6, 6}));
}

TEST_F(MeasureTest, WhatTheServerCannotHoldIsRefusedBeforeAnythingIsSent) {
  options_.dataset.input_len = 64;
  const absl::Status status = Measure(options_, &stop_).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(status.message(), HasSubstr("the server's is 64"));
  EXPECT_TRUE(generation_.salts().empty());
}

TEST_F(MeasureTest, AServerLostDuringTheWarmUpEndsTheMeasurement) {
  generation_.gone = true;
  options_.dataset.num_prompts = 100;
  options_.num_warmups = 40;
  const absl::Status status = Measure(options_, &stop_).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kClientError);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 was lost"));
}

TEST_F(MeasureTest, AServerLostDuringTheRunIsAFailureThatNamesTheCause) {
  generation_.gone = true;
  options_.dataset.num_prompts = 100;
  options_.num_warmups = 0;
  const auto result = Measure(options_, &stop_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->interrupted);
  EXPECT_GE(Count(*result, RequestOutcome::kFailed), 16);
  EXPECT_GT(Count(*result, RequestOutcome::kUnfinished), 0);
  EXPECT_EQ(result->runs[0].requests[0].code, "UNAVAILABLE");
  EXPECT_THAT(result->runs[0].requests[0].message, HasSubstr("rank 1 was lost"));
}

TEST_F(MeasureTest, OnceStoppedNothingIsSent) {
  stop_.Stop();
  const auto result = Measure(options_, &stop_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->interrupted);
  EXPECT_EQ(Count(*result, RequestOutcome::kUnfinished), 6);
  EXPECT_TRUE(generation_.salts().empty());
}

}  // namespace
}  // namespace bulkhead
