// The client against an in-process server that sends whatever a test needs.
#include "launcher/clients/generation_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "google/rpc/error_details.pb.h"
#include "launcher/clients/client_channel.h"
#include "launcher/clients/drain.h"
#include "launcher/clients/generate.h"
#include "runtime/engine/refusal.h"
#include "tests/launcher/local_server.h"

namespace bulkhead {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Writer = grpc::ServerWriter<v1::GenerateEvent>;

class FakeGeneration : public v1::Generation::Service {
 public:
  std::function<grpc::Status(grpc::ServerContext*, const v1::GenerateRequest&, Writer*)> answer;
  std::atomic<int> calls{0};

  grpc::Status GenerateStream(grpc::ServerContext* context, const v1::GenerateRequest* request,
                              Writer* writer) override {
    ++calls;
    return answer(context, *request, writer);
  }
};

v1::GenerateEvent AcceptedEvent(uint64_t seed) {
  v1::GenerateEvent event;
  event.mutable_accepted()->set_seed(seed);
  event.mutable_accepted()->mutable_prompt_token_ids()->add_ids(42);
  return event;
}

v1::GenerateEvent DeltaEvent(uint64_t position, std::vector<uint32_t> ids,
                             const std::string& text) {
  v1::GenerateEvent event;
  event.mutable_delta()->set_position(position);
  event.mutable_delta()->set_text(text);
  for (const uint32_t id : ids) event.mutable_delta()->add_tokens()->set_id(id);
  return event;
}

v1::GenerateEvent FinishedEvent(v1::FinishReason reason) {
  v1::GenerateEvent event;
  event.mutable_finished()->set_reason(reason);
  return event;
}

grpc::Status Refusal(grpc::StatusCode code, const char* reason, absl::Duration retry_after,
                     const std::string& message = "refused") {
  google::rpc::RetryInfo info;
  absl::Duration nanos;
  info.mutable_retry_delay()->set_seconds(
      absl::IDivDuration(retry_after, absl::Seconds(1), &nanos));
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(nanos)));
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  google::rpc::ErrorInfo error;
  error.set_reason(reason);
  details.add_details()->PackFrom(error);
  return grpc::Status(code, message, details.SerializeAsString());
}

grpc::Status QueueFull(absl::Duration retry_after) {
  return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, reason::kQueueFull, retry_after);
}

class GenerationClientTest : public ::testing::Test {
 protected:
  GenerationResult Run(std::optional<absl::Duration> timeout = std::nullopt) {
    auto channel = Connect(server_.target(), {}, absl::Seconds(20));
    EXPECT_TRUE(channel.ok()) << channel.status();
    if (!channel.ok()) return GenerationResult();
    GenerationClient client(*channel, server_.target(), &calls_, timeout);
    v1::GenerateRequest request;
    request.set_text("prompt");
    ClientTimes times;
    return client.Run(
        5, request, [this](absl::string_view piece) { pieces_.emplace_back(piece); }, &times);
  }

  // What standard error has of a request that a full queue refuses once.
  std::string ToldWithHint(absl::Duration hint) {
    generation_.answer = [this, hint](grpc::ServerContext*, const v1::GenerateRequest&,
                                      Writer* writer) {
      if (generation_.calls == 1) {
        return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, reason::kQueueFull, hint,
                       "refused\x1b[2J");
      }
      writer->Write(FinishedEvent(v1::FINISH_REASON_EOS));
      return grpc::Status::OK;
    };
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(Run().status.ok());
    return ::testing::internal::GetCapturedStderr();
  }

  FakeGeneration generation_;
  LocalServer server_{{&generation_}};
  CallsInFlight calls_;
  std::vector<std::string> pieces_;
};

std::vector<uint32_t> IdsOf(const GenerationResult& result) {
  std::vector<uint32_t> ids;
  for (const v1::Token& token : result.tokens) ids.push_back(token.id());
  return ids;
}

TEST(ClientStatus, WhatTheConnectionDidNamesTheServerAndWhatAServerSaidStays) {
  const auto told = [](grpc::StatusCode code, const std::string& message,
                       const std::string& details) {
    return std::string(StatusOf(grpc::Status(code, message, details), "host:5").message());
  };
  EXPECT_EQ(told(grpc::StatusCode::UNAVAILABLE, "Socket closed", ""),
            "the server at host:5 can no longer be reached (Socket closed); its last line says "
            "why it ended");
  EXPECT_THAT(told(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded", ""),
              HasSubstr("host:5 did not answer in time"));
  EXPECT_THAT(told(grpc::StatusCode::CANCELLED, "CANCELLED", ""),
              HasSubstr("host:5 was cancelled"));
  EXPECT_EQ(told(grpc::StatusCode::UNAVAILABLE, "draining", "details"), "draining");
  EXPECT_EQ(told(grpc::StatusCode::INVALID_ARGUMENT, "bad", ""), "bad");
}

TEST_F(GenerationClientTest, AStreamBecomesAResult) {
  generation_.answer = [](grpc::ServerContext*, const v1::GenerateRequest& request,
                          Writer* writer) {
    EXPECT_EQ(request.text(), "prompt");
    writer->Write(AcceptedEvent(77));
    writer->Write(DeltaEvent(0, {1}, "a"));
    writer->Write(DeltaEvent(1, {2, 3}, ""));
    writer->Write(DeltaEvent(3, {4}, "b"));
    writer->Write(FinishedEvent(v1::FINISH_REASON_MAX_TOKENS));
    return grpc::Status::OK;
  };
  const GenerationResult result = Run();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.index, 5);
  EXPECT_EQ(result.seed, 77U);
  EXPECT_THAT(result.prompt_token_ids, ElementsAre(42));
  EXPECT_THAT(IdsOf(result), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(result.text, "ab");
  EXPECT_THAT(pieces_, ElementsAre("a", "b"));
  EXPECT_EQ(result.finish_reason, v1::FINISH_REASON_MAX_TOKENS);
}

TEST_F(GenerationClientTest, AFailureInTheMiddleKeepsWhatHadArrived) {
  generation_.answer = [](grpc::ServerContext*, const v1::GenerateRequest&, Writer* writer) {
    writer->Write(AcceptedEvent(1));
    writer->Write(DeltaEvent(0, {1}, "a"));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "rank 1 was lost", "details");
  };
  const GenerationResult result = Run();
  EXPECT_EQ(result.status, absl::UnavailableError("rank 1 was lost"));
  EXPECT_THAT(IdsOf(result), ElementsAre(1));
  EXPECT_EQ(result.text, "a");
}

TEST_F(GenerationClientTest, AStreamThatSkipsOrNeverFinishesIsNoAnswer) {
  generation_.answer = [](grpc::ServerContext*, const v1::GenerateRequest&, Writer* writer) {
    writer->Write(DeltaEvent(0, {1}, "a"));
    writer->Write(DeltaEvent(2, {3}, "c"));
    writer->Write(FinishedEvent(v1::FINISH_REASON_EOS));
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run().status.code(), absl::StatusCode::kDataLoss);
  generation_.answer = [](grpc::ServerContext*, const v1::GenerateRequest&, Writer* writer) {
    writer->Write(DeltaEvent(0, {1}, "a"));
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run().status.code(), absl::StatusCode::kDataLoss);
}

TEST_F(GenerationClientTest, AStreamThatGoesOnBeyondTheAnswerIsEnded) {
  const std::string piece(100, 'a');
  std::atomic<uint64_t> sent{0};
  generation_.answer = [&](grpc::ServerContext* context, const v1::GenerateRequest&,
                           Writer* writer) {
    uint64_t position = 0;  // two calls may run at a time
    while (position < 100'000 && !context->IsCancelled()) {
      writer->Write(DeltaEvent(position++, {1}, piece));
    }
    sent = position;
    return grpc::Status::OK;
  };
  const auto channel = Connect(server_.target(), {}, absl::Seconds(20));
  ASSERT_TRUE(channel.ok()) << channel.status();
  GenerationClient client(*channel, server_.target(), &calls_, std::nullopt,
                          /*max_answer_bytes=*/1000);
  ClientTimes times;
  v1::GenerateRequest request;
  const GenerationResult any = client.Run(
      0, request, [](absl::string_view) {}, &times);
  EXPECT_EQ(any.status, absl::DataLossError("the server's answer has more than 1000 bytes"));
  EXPECT_LT(any.text.size(), 1000);
  EXPECT_LT(sent, 100'000);
  request.mutable_stopping()->set_max_tokens(2);
  const GenerationResult two = client.Run(
      0, request, [](absl::string_view) {}, &times);
  server_.Shutdown();  // its calls use what is declared here
  EXPECT_EQ(two.status, absl::DataLossError("the server sent more than the 2 tokens asked for"));
  EXPECT_EQ(two.tokens.size(), 3);
  EXPECT_LT(sent, 100'000);
}

TEST_F(GenerationClientTest, AFullQueueIsTriedAgainAfterTheHint) {
  generation_.answer = [this](grpc::ServerContext*, const v1::GenerateRequest&, Writer* writer) {
    if (generation_.calls < 3) return QueueFull(absl::Milliseconds(1));
    writer->Write(FinishedEvent(v1::FINISH_REASON_EOS));
    return grpc::Status::OK;
  };
  EXPECT_TRUE(Run().status.ok());
  EXPECT_EQ(generation_.calls, 3);
}

TEST_F(GenerationClientTest, ACallThatHasNotBegunIsTriedAgainAfterTheHint) {
  generation_.answer = [this](grpc::ServerContext*, const v1::GenerateRequest&, Writer* writer) {
    if (generation_.calls < 3) {
      return Refusal(grpc::StatusCode::UNAVAILABLE, reason::kTooManyCalls, absl::Milliseconds(1));
    }
    writer->Write(FinishedEvent(v1::FINISH_REASON_EOS));
    return grpc::Status::OK;
  };
  EXPECT_TRUE(Run().status.ok());
  EXPECT_EQ(generation_.calls, 3);
}

TEST_F(GenerationClientTest, AServerThatStartsOrEndsIsNotWaitedFor) {
  for (const char* why : {reason::kStarting, reason::kDraining, reason::kRankLost}) {
    generation_.answer = [&](grpc::ServerContext*, const v1::GenerateRequest&, Writer*) {
      if (generation_.calls > 1) return grpc::Status::OK;
      return Refusal(grpc::StatusCode::UNAVAILABLE, why, absl::Milliseconds(1));
    };
    generation_.calls = 0;
    const absl::Status status = Run().status;
    EXPECT_EQ(status.message(), "refused");
    EXPECT_EQ(ReasonOf(status), why);
    EXPECT_EQ(generation_.calls, 1) << why;
  }
}

TEST_F(GenerationClientTest, ARefusalWithoutAHintIsFinal) {
  generation_.answer = [](grpc::ServerContext*, const v1::GenerateRequest&, Writer*) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "message too large");
  };
  EXPECT_EQ(Run().status, absl::ResourceExhaustedError("message too large"));
  EXPECT_EQ(generation_.calls, 1);
}

TEST_F(GenerationClientTest, AHintBeyondTheTimeoutIsNotWaitedFor) {
  generation_.answer = [](grpc::ServerContext*, const v1::GenerateRequest&, Writer*) {
    return QueueFull(absl::Seconds(9));
  };
  EXPECT_EQ(Run(absl::Seconds(5)).status.message(), "refused");
  EXPECT_EQ(generation_.calls, 1);
}

TEST_F(GenerationClientTest, ATimeoutEndsAStreamThatHangs) {
  generation_.answer = [](grpc::ServerContext* context, const v1::GenerateRequest&, Writer*) {
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  };
  EXPECT_EQ(Run(absl::Milliseconds(50)).status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(GenerationClientTest, CancellingReachesTheServer) {
  generation_.answer = [this](grpc::ServerContext* context, const v1::GenerateRequest&, Writer*) {
    calls_.CancelAll();
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  };
  EXPECT_EQ(Run().status.code(), absl::StatusCode::kCancelled);
  // Calls started afterwards are cancelled too.
  EXPECT_EQ(Run().status.code(), absl::StatusCode::kCancelled);
}

TEST_F(GenerationClientTest, CancellingEndsTheWaitForAFullQueue) {
  generation_.answer = [this](grpc::ServerContext*, const v1::GenerateRequest&, Writer*) {
    calls_.CancelAll();
    return QueueFull(absl::Milliseconds(900));
  };
  EXPECT_EQ(Run().status.code(), absl::StatusCode::kCancelled);
}

TEST_F(GenerationClientTest, AWaitOfMoreThanTwoSecondsIsTold) {
  EXPECT_THAT(
      ToldWithHint(absl::Milliseconds(2100)),
      AllOf(HasSubstr("refused: refused\\x1b[2J; each"), HasSubstr("for up to 2m (--timeout")));
}

TEST_F(GenerationClientTest, AShortWaitIsNotTold) {
  EXPECT_EQ(ToldWithHint(absl::Milliseconds(1)), "");
}

// A socket that listens, and its address.
int Listen(std::string* target) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listener, 8), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  *target = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  return listener;
}

TEST(ConnectTest, WhatAnswersButIsNoGrpcServerIsToldFromNobody) {
  std::string target;
  const int listener = Listen(&target);
  std::thread server([&] {
    for (int fd = accept(listener, nullptr, nullptr); fd >= 0;
         fd = accept(listener, nullptr, nullptr)) {
      const std::string page = "HTTP/1.1 400 Bad Request\r\n\r\n";
      EXPECT_EQ(send(fd, page.data(), page.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(page.size()));
      close(fd);
    }
  });
  const absl::Status status = Connect(target, {}, absl::Seconds(5)).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kClientError);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(target), HasSubstr("does not speak gRPC"), HasSubstr("still starting")));
  shutdown(listener, SHUT_RDWR);
  server.join();
  close(listener);
}

TEST(ConnectTest, AServerThatAcceptsAndSendsNothingMayHangOrBeStopped) {
  std::string target;
  const int listener = Listen(&target);
  EXPECT_THAT(std::string(Connect(target, {}, absl::Milliseconds(200)).status().message()),
              AllOf(HasSubstr(target), HasSubstr("hangs or is stopped")));
  close(listener);
}

TEST(ConnectTest, AKeyThatCannotBeSentIsOfTheCommandLineAndNotOfAPrompt) {
  setenv("BULKHEAD_API_KEY", "short", 1);
  GenerateOptions options;
  options.prompts = {"hello"};
  const absl::Status status = RunGenerate(options);
  unsetenv("BULKHEAD_API_KEY");
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(std::string(status.message()), StartsWith("BULKHEAD_API_KEY: the API key has 5"));
}

TEST(ConnectTest, NobodyAtTheTargetIsNamed) {
  GenerateOptions options;
  options.target = "127.0.0.1:1";
  options.prompts = {"hello"};
  const absl::Status status = RunGenerate(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kClientError);
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1:1"));
  DrainOptions drain;
  drain.target = "127.0.0.1:1";
  EXPECT_EQ(ExitCodeOf(RunDrain(drain)), ExitCode::kClientError);
}

}  // namespace
}  // namespace bulkhead
