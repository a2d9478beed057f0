// The client against servers in this process.
#include "launcher/bench/serve/load_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/exit_code.h"
#include "google/rpc/error_details.pb.h"
#include "launcher/bench/serve/client_ceiling.h"
#include "launcher/bench/serve/null_server.h"
#include "tests/launcher/local_server.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;
using Writer = grpc::ServerWriter<v1::GenerateEvent>;

std::vector<v1::GenerateRequest> Requests(int count, int tokens) {
  v1::GenerateRequest request;
  for (int i = 0; i < 7; ++i) request.mutable_token_ids()->add_ids(i);
  request.mutable_stopping()->set_max_tokens(tokens);
  return std::vector<v1::GenerateRequest>(count, request);
}

class FakeGeneration : public v1::Generation::Service {
 public:
  std::function<grpc::Status(grpc::ServerContext*, Writer*)> answer;
  std::atomic<int> running{0}, most_running{0}, calls{0};

  grpc::Status GenerateStream(grpc::ServerContext* context, const v1::GenerateRequest*,
                              Writer* writer) override {
    ++calls;
    const int now = ++running;
    int most = most_running;
    while (now > most && !most_running.compare_exchange_weak(most, now)) {
    }
    const grpc::Status status = answer(context, writer);
    --running;
    return status;
  }
};

class LoadGeneratorTest : public ::testing::Test {
 protected:
  std::unique_ptr<LoadGenerator> Connected(std::optional<absl::Duration> timeout = std::nullopt) {
    auto generator = LoadGenerator::Connect(server_.target(), 2, timeout);
    EXPECT_TRUE(generator.ok()) << generator.status();
    return generator.ok() ? *std::move(generator) : nullptr;
  }

  FakeGeneration generation_;
  LocalServer server_{{&generation_}};
};

TEST(NullServerTest, EveryTokenAskedForArrivesAndIsCounted) {
  const auto server = NullServer::Start(/*tokens_per_message=*/3);
  ASSERT_TRUE(server.ok());
  const auto generator = LoadGenerator::Connect((*server)->target(), 2, std::nullopt);
  ASSERT_TRUE(generator.ok());
  const auto requests = Requests(50, 8);
  LoadPlan plan;
  plan.requests = &requests;
  plan.due_s.assign(50, 0.0);
  const RunRecord run = (*generator)->Run(plan);
  ASSERT_EQ(run.requests.size(), 50);
  for (const RequestRecord& request : run.requests) {
    EXPECT_EQ(request.outcome, RequestOutcome::kCompleted);
    EXPECT_EQ(request.prompt_tokens, 7);
    EXPECT_EQ(request.completion_tokens, 8);
    ASSERT_EQ(request.arrivals.size(), 3);
    EXPECT_EQ(request.arrivals[0].tokens, 3);
    EXPECT_EQ(request.arrivals[2].tokens, 2);
    EXPECT_LE(*request.sent_s, request.arrivals[0].time_s);
    EXPECT_LE(request.arrivals[2].time_s, request.end_s);
    EXPECT_EQ(request.finish_reason, "length");
  }
  EXPECT_EQ((*generator)->progress().completed, 50);
  EXPECT_EQ((*generator)->progress().tokens, 400);
  EXPECT_EQ((*generator)->progress().in_flight(), 0);
  // The same generator can run again.
  EXPECT_EQ((*generator)->Run(plan).requests[49].outcome, RequestOutcome::kCompleted);
}

TEST(NullServerTest, TheClientKnowsItsCeiling) {
  const auto ceiling = MeasureCeiling(2);
  ASSERT_TRUE(ceiling.ok()) << ceiling.status();
  EXPECT_GT(ceiling->requests_per_s, 20);
  EXPECT_GT(ceiling->tokens_per_s, 100);
}

TEST(NullServerTest, RequestsAreNotSentBeforeTheyAreDue) {
  const auto server = NullServer::Start();
  ASSERT_TRUE(server.ok());
  const auto generator = LoadGenerator::Connect((*server)->target(), 1, std::nullopt);
  ASSERT_TRUE(generator.ok());
  const auto requests = Requests(5, 1);
  LoadPlan plan;
  plan.requests = &requests;
  plan.due_s = {0, 0.05, 0.1, 0.1, 0.2};
  const RunRecord run = (*generator)->Run(plan);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(run.requests[i].scheduled_s, plan.due_s[i]);
    EXPECT_GE(*run.requests[i].sent_s, plan.due_s[i]);
    EXPECT_NEAR(run.requests[i].lag_s, *run.requests[i].sent_s - plan.due_s[i], 1e-12);
  }
}

TEST_F(LoadGeneratorTest, NoMoreThanMaxConcurrencyAreInFlight) {
  generation_.answer = [](grpc::ServerContext*, Writer* writer) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    v1::GenerateEvent event;
    event.mutable_finished();
    writer->Write(event);
    return grpc::Status::OK;
  };
  const auto generator = Connected();
  const auto requests = Requests(12, 1);
  LoadPlan plan;
  plan.requests = &requests;
  plan.max_concurrency = 3;
  const RunRecord closed = generator->Run(plan);
  EXPECT_LE(generation_.most_running, 3);
  // Closed loop: a request is due when a slot becomes free.
  EXPECT_EQ(closed.requests[0].scheduled_s, 0);
  EXPECT_EQ(closed.requests[2].scheduled_s, 0);
  EXPECT_GE(closed.requests[3].scheduled_s, 0.02);
  // Open loop: waiting for a slot counts, but is no lag of ours.
  plan.due_s.assign(12, 0.0);
  const RunRecord open = generator->Run(plan);
  EXPECT_LE(generation_.most_running, 3);
  EXPECT_EQ(open.requests[11].scheduled_s, 0);
  EXPECT_GE(*open.requests[11].sent_s, 0.06);
  EXPECT_LT(open.requests[11].lag_s, *open.requests[11].sent_s);
}

TEST_F(LoadGeneratorTest, ARefusalIsAFailureWithCodeAndReason) {
  generation_.answer = [](grpc::ServerContext*, Writer*) {
    google::rpc::ErrorInfo info;
    info.set_reason("QUEUE_FULL");
    google::rpc::Status details;
    details.add_details()->PackFrom(info);
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "queue full",
                        details.SerializeAsString());
  };
  const auto generator = Connected();
  const auto requests = Requests(2, 1);
  LoadPlan plan;
  plan.requests = &requests;
  plan.due_s = {0, 0};
  const RunRecord run = generator->Run(plan);
  for (const RequestRecord& request : run.requests) {
    EXPECT_EQ(request.outcome, RequestOutcome::kFailed);
    EXPECT_EQ(request.code, "RESOURCE_EXHAUSTED");
    EXPECT_EQ(request.reason, "QUEUE_FULL");
    EXPECT_EQ(request.message, "queue full");
  }
  EXPECT_FALSE(generator->server_is_gone());
}

TEST_F(LoadGeneratorTest, AStreamWithoutAnEndIsAFailure) {
  generation_.answer = [](grpc::ServerContext*, Writer* writer) {
    v1::GenerateEvent event;
    event.mutable_delta()->add_tokens()->set_id(1);
    writer->Write(event);
    return grpc::Status::OK;
  };
  const auto generator = Connected();
  const auto requests = Requests(1, 1);
  LoadPlan plan;
  plan.requests = &requests;
  plan.due_s = {0};
  const RunRecord run = generator->Run(plan);
  EXPECT_EQ(run.requests[0].outcome, RequestOutcome::kFailed);
  EXPECT_EQ(run.requests[0].code, "DATA_LOSS");
  EXPECT_EQ(run.requests[0].arrivals.size(), 1);
}

TEST_F(LoadGeneratorTest, AStreamThatLeavesTokensOutIsAFailure) {
  generation_.answer = [](grpc::ServerContext*, Writer* writer) {
    v1::GenerateEvent event;
    event.mutable_delta()->add_tokens()->set_id(1);
    writer->Write(event);
    event.mutable_delta()->set_position(2);
    writer->Write(event);
    event.mutable_finished()->set_reason(v1::FINISH_REASON_MAX_TOKENS);
    writer->Write(event);
    return grpc::Status::OK;
  };
  const auto generator = Connected();
  const auto requests = Requests(1, 2);
  LoadPlan plan;
  plan.requests = &requests;
  plan.due_s = {0};
  const RunRecord run = generator->Run(plan);
  EXPECT_EQ(run.requests[0].outcome, RequestOutcome::kFailed);
  EXPECT_EQ(run.requests[0].code, "DATA_LOSS");
  EXPECT_EQ(run.requests[0].message, "the server continued at position 2 after 1 tokens");
}

TEST_F(LoadGeneratorTest, AStreamOfMoreTokensThanAskedForIsEnded) {
  std::atomic<uint64_t> sent{0};
  generation_.answer = [&](grpc::ServerContext* context, Writer* writer) {
    v1::GenerateEvent event;
    event.mutable_delta()->add_tokens()->set_id(1);
    for (sent = 0; sent < 100'000 && !context->IsCancelled(); ++sent) {
      event.mutable_delta()->set_position(sent);
      writer->Write(event);
    }
    return grpc::Status::OK;
  };
  const auto generator = Connected();
  const auto requests = Requests(1, 2);
  LoadPlan plan;
  plan.requests = &requests;
  plan.due_s = {0};
  const RunRecord run = generator->Run(plan);
  server_.Shutdown();  // the call uses what is declared here
  EXPECT_EQ(run.requests[0].outcome, RequestOutcome::kFailed);
  EXPECT_EQ(run.requests[0].code, "DATA_LOSS");
  EXPECT_EQ(run.requests[0].message, "the server sent more than the 2 tokens asked for");
  EXPECT_EQ(run.requests[0].arrivals.size(), 3);
  EXPECT_LT(sent, 100'000);
}

TEST_F(LoadGeneratorTest, ATimeoutEndsARequest) {
  generation_.answer = [](grpc::ServerContext* context, Writer*) {
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return grpc::Status::CANCELLED;
  };
  const auto generator = Connected(absl::Milliseconds(50));
  const auto requests = Requests(1, 1);
  LoadPlan plan;
  plan.requests = &requests;
  plan.due_s = {0};
  EXPECT_EQ(generator->Run(plan).requests[0].code, "DEADLINE_EXCEEDED");
}

TEST_F(LoadGeneratorTest, StopLeavesWhatHadNoEndUnfinished) {
  absl::Notification begun;
  generation_.answer = [&](grpc::ServerContext* context, Writer*) {
    if (!begun.HasBeenNotified()) begun.Notify();
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return grpc::Status::CANCELLED;
  };
  const auto generator = Connected();
  const auto requests = Requests(4, 1);
  LoadPlan plan;
  plan.requests = &requests;
  plan.due_s = {0, 3600, 3600, 3600};
  std::thread stopper([&] {
    begun.WaitForNotification();
    generator->Stop();
  });
  const RunRecord run = generator->Run(plan);
  stopper.join();
  for (const RequestRecord& request : run.requests) {
    EXPECT_EQ(request.outcome, RequestOutcome::kUnfinished);
  }
  EXPECT_TRUE(run.requests[0].sent_s.has_value());
  EXPECT_FALSE(run.requests[1].sent_s.has_value());
  EXPECT_EQ(run.requests[3].scheduled_s, 3600);
  EXPECT_EQ(generation_.calls, 1);
}

TEST_F(LoadGeneratorTest, AServerThatIsGoneEndsTheRun) {
  generation_.answer = [](grpc::ServerContext*, Writer*) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "rank 1 was lost");
  };
  const auto generator = Connected();
  const auto requests = Requests(500, 1);
  LoadPlan plan;
  plan.requests = &requests;
  plan.max_concurrency = 1;
  const RunRecord run = generator->Run(plan);
  EXPECT_TRUE(generator->server_is_gone());
  EXPECT_EQ(generator->progress().failed, 16);
  EXPECT_EQ(run.requests[499].outcome, RequestOutcome::kUnfinished);
}

TEST(LoadGeneratorConnect, NobodyThereIsSaidAtOnce) {
  const absl::Status status = LoadGenerator::Connect("127.0.0.1:1", 1, std::nullopt).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kClientError);
  EXPECT_THAT(status.message(), HasSubstr("no server answers at 127.0.0.1:1"));
}

}  // namespace
}  // namespace bulkhead
