// A server behind its guard, and clients that speak HTTP/2 by hand.
#include <gmock/gmock.h>
#include <malloc.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "memory/host_memory.h"
#include "runtime/service/guard/connection_guard.h"
#include "tests/runtime/service/grpc/raw_client.h"
#include "tests/runtime/service/grpc/service_fixture.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

class GuardedServerTest : public ServiceFixture {
 protected:
  void Restart(const HostQuotas& quotas) {
    GrpcServer::Options options;
    options.port = 0;
    server_ = nullptr;
    core_ = std::make_unique<ServiceCore>(quotas);
    server_ = *GrpcServer::Start(options, core_.get());
    channel_ = NewChannel();
    generation_ = v1::Generation::NewStub(channel_);
    control_ = v1::Control::NewStub(channel_);
    engine_.AnswerWith([](const Submitted& s) { s.Finish(FinishReason::kEos, 0); });
    MakeReady();
  }
  v1::HostLoad Load() {
    grpc::ClientContext context;
    v1::LoadInfo load;
    EXPECT_TRUE(control_->GetLoad(&context, {}, &load).ok());
    return load.host();
  }
  grpc::Status Generate() {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    return generation_->Generate(&context, TextRequestOf(""), &response);
  }
  static void WaitFor(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), limit);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
};

TEST(ClientAddressTest, IsTheOneThatTheGuardNamedItsEndAfter) {
  EXPECT_EQ(ClientAddress("unix-abstract:bulkhead-7-1%2C10.0.0.1%3A99"), "10.0.0.1:99");
  EXPECT_EQ(ClientAddress("unix-abstract:bulkhead-7-1,%5B::1%5D:99"), "[::1]:99");
  EXPECT_EQ(ClientAddress("ipv4:10.0.0.1:99"), "ipv4:10.0.0.1:99");
}

TEST_F(GuardedServerTest, MoreConnectionsThanTheQuotaAreClosedAndCounted) {
  HostQuotas quotas;
  quotas.max_connections = 8;
  Restart(quotas);
  EXPECT_TRUE(Generate().ok());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 7; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    clients.back()->Greet();
    clients.back()->Send(CallHeaders(1, "/bulkhead.v1.Generation/Generate"));  // not idle
  }
  WaitFor([&] { return Load().open_calls().now() == 8; });  // and GetLoad itself
  RawClient one_more(server_->port());
  EXPECT_TRUE(one_more.IsHungUpOn());
  EXPECT_EQ(Load().num_connections_closed_by_reason().at("TOO_MANY_CONNECTIONS"), 1U);
  EXPECT_TRUE(Generate().ok());
  clients.clear();
  WaitFor([&] { return Load().connections().now() == 1; });
}

TEST_F(GuardedServerTest, IdleConnectionsMakeRoomForNewOnes) {
  HostQuotas quotas;
  quotas.max_connections = 8;
  Restart(quotas);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(std::make_unique<RawClient>(server_->port()));
  EXPECT_TRUE(clients[0]->IsHungUpOn());
  WaitFor([&] { return Generate().ok(); });
}

TEST_F(GuardedServerTest, ABodyThatIsTooLargeIsResourceExhausted) {
  HostQuotas quotas;
  quotas.message_bytes = 1 << 20;
  Restart(quotas);
  v1::GenerateRequest request;
  request.set_text(std::string((1 << 20) + 1, 'x'));
  grpc::ClientContext context;
  v1::GenerateResponse response;
  EXPECT_EQ(generation_->Generate(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Generate().ok());                   // over the same connection
  EXPECT_LT(Load().request_bytes().now(), 100U);  // GetLoad's own
}

TEST_F(GuardedServerTest, AConnectionGoesOnAfterAnyNumberOfCallsThatTheGuardRefused) {
  HostQuotas quotas;
  quotas.message_bytes = 1 << 20;
  Restart(quotas);
  v1::GenerateRequest request;
  request.set_text(std::string(4 << 20, 'x'));
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    const grpc::Status status = generation_->Generate(&context, request, &response);
    ASSERT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    ASSERT_EQ(ReasonOf(status), "MESSAGE_TOO_LARGE");
    ASSERT_THAT(status.error_message(), HasSubstr("more than the limit of 1048576"));
    ASSERT_TRUE(Generate().ok());
  }
}

TEST_F(GuardedServerTest, ACallBeyondTheTotalIsToldWhy) {
  HostQuotas quotas;
  quotas.max_open_calls = 8;
  Restart(quotas);
  EXPECT_TRUE(Generate().ok());
  RawClient client(server_->port());
  client.Greet();
  uint32_t stream = 1;
  WaitFor([&] {
    client.Send(CallHeaders(stream, "/bulkhead.v1.Generation/Generate"));
    stream += 2;
    const grpc::Status status = Generate();
    return ReasonOf(status) == "TOO_MANY_CALLS" &&
           status.error_code() == grpc::StatusCode::UNAVAILABLE;
  });
}

TEST_F(GuardedServerTest, BodiesThatTakeTurnsAllArrive) {
  HostQuotas quotas;
  quotas.message_bytes = 1 << 20;
  quotas.request_bytes = 2 << 20;
  Restart(quotas);
  std::vector<std::thread> clients;
  std::atomic<int> answered{0};
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      v1::DetokenizeRequest request;
      for (int id = 0; id < 500'000; ++id) request.mutable_token_ids()->add_ids(1);
      grpc::ClientContext context;
      v1::DetokenizeResponse response;
      answered +=
          v1::Generation::NewStub(NewChannel())->Detokenize(&context, request, &response).ok();
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 8);
  EXPECT_LE(Load().request_bytes().peak(), 2U << 20);
}

// The service refuses calls from 85 percent on; the guard connections, and what nobody admitted.
TEST_F(GuardedServerTest, WhenMemoryIsShortConnectionsAreRefusedAndWhatNobodyAdmittedGoes) {
  constexpr size_t kTotalBytes = size_t{256} << 20;
  HostQuotas quotas;
  quotas.total_bytes = kTotalBytes;
  malloc_trim(0);  // or the server does, between the two looks at what is resident
  Restart(quotas);
  EXPECT_TRUE(Generate().ok());  // an admitted connection, which stays
  RawClient half(server_->port());
  half.Greet();
  half.Send(CallHeaders(1, "/bulkhead.v1.Generation/Generate") + Message(1, 1 << 20, 1000));
  WaitFor([&] { return Load().request_bytes().now() > 1 << 20; });
  testing::internal::CaptureStderr();
  const int64_t before = ResidentBytes();
  std::vector<char> taken(kTotalBytes + (32 << 20), 1);  // what others freed may be trimmed now
  ASSERT_GT(ResidentBytes(), before + static_cast<int64_t>(kTotalBytes * 0.97));
  EXPECT_TRUE(half.IsHungUpOn());
  RawClient newcomer(server_->port());
  EXPECT_TRUE(newcomer.IsHungUpOn());
  std::vector<char>().swap(taken);
  WaitFor([&] { return Generate().ok(); });
  const v1::HostLoad load = Load();
  EXPECT_EQ(load.num_connections_closed_by_reason().at("OVERLOADED"), 1U);
  EXPECT_GE(load.num_connections_closed_by_reason().at("TOO_MANY_CONNECTIONS"), 1U);
  WaitFor([&] { return Load().connections().now() == 1; });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("calls are taken again"));
}

TEST_F(GuardedServerTest, TheControlPortAnswersAsTheMainOneDoes) {
  MakeReady();
  const auto channel =
      grpc::CreateChannel(server_->control_target(), grpc::InsecureChannelCredentials());
  {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    EXPECT_TRUE(grpc::health::v1::Health::NewStub(channel)->Check(&context, {}, &response).ok());
    EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  }
  {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service("nothing");
    grpc::health::v1::HealthCheckResponse response;
    EXPECT_EQ(grpc::health::v1::Health::NewStub(channel)
                  ->Check(&context, request, &response)
                  .error_code(),
              grpc::StatusCode::NOT_FOUND);
  }
  const auto control = v1::Control::NewStub(channel);
  {
    grpc::ClientContext context;
    v1::DrainRequest request;
    request.set_timeout_s(0xFFFFFFFF);
    v1::DrainResponse response;
    EXPECT_EQ(ReasonOf(control->Drain(&context, request, &response)), "INVALID_VALUE");
  }
  {  // before gRPC has parsed it
    grpc::ClientContext context;
    v1::AbortRequest request;
    request.add_request_ids(std::string(64 << 10, 'x'));
    v1::AbortResponse response;
    EXPECT_EQ(ReasonOf(control->Abort(&context, request, &response)), "MESSAGE_TOO_LARGE");
  }
  grpc::ClientContext context;
  v1::ServerInfo info;
  EXPECT_TRUE(control->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.epoch(), core_->state.epoch());
  // What is not served there is said to be so.
  grpc::ClientContext other;
  v1::GenerateResponse response;
  EXPECT_EQ(v1::Generation::NewStub(channel)
                ->Generate(&other, TextRequestOf("r"), &response)
                .error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace bulkhead
