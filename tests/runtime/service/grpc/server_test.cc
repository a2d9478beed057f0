#include "runtime/service/grpc/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "tests/runtime/service/grpc/service_fixture.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

class ServerTest : public ServiceFixture {
 protected:
  grpc::Status Generate() {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    return generation_->Generate(&context, TextRequestOf("r"), &response);
  }
};

absl::Status StartOn(const std::string& host, int port, int control_port = 0) {
  GrpcServer::Options options;
  options.host = host;
  options.port = port;
  options.control_port = control_port;
  ServiceCore core{HostQuotas()};
  return GrpcServer::Start(options, &core).status();
}

// A listening socket of another program.
class OtherListener {
 public:
  explicit OtherListener(bool reuse_address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int on = reuse_address ? 1 : 0;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  ~OtherListener() { close(fd_); }
  OtherListener(const OtherListener&) = delete;
  OtherListener& operator=(const OtherListener&) = delete;
  int port() const { return port_; }

 private:
  int fd_;
  int port_ = 0;
};

TEST_F(ServerTest, PortZeroBindsAFreePortAndSaysWhich) {
  EXPECT_GT(server_->port(), 0);
  EXPECT_EQ(server_->target(), "127.0.0.1:" + std::to_string(server_->port()));
}

TEST_F(ServerTest, ASecondServerOnThePortIsRefused) {
  const absl::Status status = StartOn("127.0.0.1", server_->port());
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kCannotBind) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(server_->target()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use; choose another --port"));
}

TEST_F(ServerTest, AControlPortThatIsInUseIsRefusedByItsOwnName) {
  const absl::Status status = StartOn("127.0.0.1", 0, server_->port());
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kCannotBind) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("choose another --control-port"));
}

TEST_F(ServerTest, APortOfAnotherProgramIsRefusedOnEveryAddress) {
  for (const bool reuse_address : {false, true}) {
    const OtherListener other(reuse_address);
    for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0"}) {
      const absl::Status status = StartOn(host, other.port());
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kCannotBind) << host << " " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(other.port())));
    }
  }
}

TEST_F(ServerTest, AnAddressThatIsNotOursIsRefused) {
  // From the range reserved for documentation.
  const absl::Status status = StartOn("192.0.2.1", 0);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kCannotBind);
  EXPECT_THAT(std::string(status.message()), HasSubstr("192.0.2.1"));
  EXPECT_EQ(ExitCodeOf(StartOn("not a host name", 0)), ExitCode::kCannotBind);
  EXPECT_EQ(ExitCodeOf(StartOn("127.0.0.1", 65536)), ExitCode::kCannotBind);
  EXPECT_EQ(ExitCodeOf(StartOn("127.0.0.1", -1)), ExitCode::kCannotBind);
}

TEST_F(ServerTest, ThePortIsFreeAgainAfterShutdown) {
  const int port = server_->port();
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_TRUE(StartOn("127.0.0.1", port).ok());
}

TEST_F(ServerTest, BeforeReadyCallsAreToldToComeBack) {
  grpc::Status status = Generate();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "STARTING");
  EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(status).has_value());
  engine_.AnswerWith([](const Submitted& s) { s.Finish(FinishReason::kEos, 0); });
  MakeReady();
  EXPECT_TRUE(Generate().ok());
}

TEST_F(ServerTest, ADrainDuringTheStartStands) {
  core_->state.SetDraining();
  MakeReady();
  EXPECT_EQ(ReasonOf(Generate()), "DRAINING");
}

TEST_F(ServerTest, ALostRankEndsEveryStreamByName) {
  MakeReady();
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("open"));
  const Submitted submitted = engine_.Next();
  submitted.Send(0, {1, 2}, "xy");
  core_->SetLost(absl::UnavailableError("rank 1 on node-b was lost: its process ended"),
                 {.rank = 1, .host = "node-b"});
  EXPECT_TRUE(server_->FlushAndWait(absl::InfiniteDuration()));
  // The engine's own end arrives later, and changes nothing.
  submitted.Send(2, {3}, "z");
  submitted.Fail(absl::InternalError("too late"));
  v1::GenerateEvent event;
  size_t tokens = 0;
  while (reader->Read(&event)) tokens += event.delta().tokens_size();
  EXPECT_EQ(tokens, 2U);
  for (const grpc::Status& status : {reader->Finish(), Generate()}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("rank 1 on node-b"));
    const auto error_info = DetailOf<google::rpc::ErrorInfo>(status);
    ASSERT_TRUE(error_info.has_value());
    EXPECT_EQ(error_info->reason(), "RANK_LOST");
    EXPECT_EQ(error_info->metadata().at("rank"), "1");
    EXPECT_EQ(error_info->metadata().at("host"), "node-b");
  }
}

TEST_F(ServerTest, TheFirstLossIsTheCause) {
  MakeReady();
  core_->SetLost(absl::UnavailableError("rank 2 was lost"), {.rank = 2, .host = "a"});
  core_->SetLost(absl::UnavailableError("rank 0 was lost"), {.rank = 0, .host = "b"});
  core_->state.SetDraining();
  EXPECT_THAT(Generate().error_message(), HasSubstr("rank 2"));
}

TEST_F(ServerTest, FlushAndWaitGivesUpOnAStreamThatRuns) {
  MakeReady();
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("open"));
  engine_.Next();
  EXPECT_FALSE(server_->FlushAndWait(absl::Milliseconds(1)));
}

TEST_F(ServerTest, AShutdownEndsWhatTheEngineLeftOpen) {
  MakeReady();
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("open"));
  engine_.Next();
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(core_->errors.Get()["STOPPING"], 1U);
}

TEST_F(ServerTest, WhatAStopEndsIsToldSo) {
  MakeReady();
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("open"));
  const Submitted submitted = engine_.Next();
  core_->Stop(absl::ZeroDuration());  // Shutdown gives the status half a second to leave
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "STOPPING");
  submitted.Finish(FinishReason::kEos, 0);  // no receiver, no effect
}

TEST_F(ServerTest, CallsThatComeWhileItShutsDownAreToldWhyTheyEnd) {
  constexpr int kClients = 8;
  engine_.AnswerWith([](const Submitted& s) { s.Finish(FinishReason::kEos, 0); });
  MakeReady();
  std::atomic<int> num_begun = 0;
  std::vector<std::string> ends(kClients);
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      const auto stub = v1::Generation::NewStub(grpc::CreateCustomChannel(
          server_->target(), grpc::InsecureChannelCredentials(), arguments));
      for (int n = 0; ends[i].empty(); ++n) {
        if (n == 1) ++num_begun;
        grpc::ClientContext context;
        v1::GenerateResponse response;
        const grpc::Status status = stub->Generate(&context, TextRequestOf(""), &response);
        const std::string reason = ReasonOf(status);
        if (status.error_code() == grpc::StatusCode::CANCELLED) ends[i] = "CANCELLED";
        if (!status.ok() && reason != "DRAINING" && ends[i].empty()) {
          ends[i] = absl::StrCat(status.error_code(), reason);
        }
      }
    });
  }
  while (num_begun < kClients) std::this_thread::yield();
  server_->Shutdown(absl::ZeroDuration());
  for (std::thread& client : clients) client.join();
  // UNAVAILABLE without a reason: there is no connection.
  EXPECT_THAT(ends, testing::Each(testing::AnyOf("14STOPPING", "14")));
}

TEST_F(ServerTest, AShutdownDoesNotWaitForAReaderThatDoesNotRead) {
  MakeReady();
  grpc::ClientContext context;
  auto reader = generation_->GenerateStream(&context, TextRequestOf("open"));
  const Submitted submitted = engine_.Next();
  submitted.Send(0, {1}, std::string(900000, 'x'));
  submitted.Send(1, {1}, "y");
  submitted.Finish(FinishReason::kEos, 2);
  server_->Shutdown(absl::ZeroDuration());
}

TEST_F(ServerTest, ReflectionListsEveryService) {
  grpc::GenericStub stub(channel_);
  // ServerReflectionRequest{list_services: "*"}: field 7.
  const std::string request = "\x3A\x01*";
  grpc::Slice slice(request);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  ASSERT_TRUE(wait());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  ASSERT_TRUE(wait());
  call->WritesDone(nullptr);
  wait();
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(answer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& part : slices) {
    text.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  for (const char* name : {"bulkhead.v1.Generation", "bulkhead.v1.Control", "grpc.health.v1.Health",
                           "vllm.grpc.engine.VllmEngine"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
  queue.Shutdown();
}

TEST_F(ServerTest, AMessageBeyondTheLimitIsRefusedByName) {
  engine_.AnswerWith([](const Submitted& s) { s.Finish(FinishReason::kEos, 0); });
  MakeReady();
  v1::GenerateRequest request = TextRequestOf("r");
  request.set_text(std::string(HostQuotas().message_bytes + 1, 'x'));
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = generation_->Generate(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto error_info = DetailOf<google::rpc::ErrorInfo>(status);
  ASSERT_TRUE(error_info.has_value()) << status.error_message();
  EXPECT_EQ(error_info->reason(), "MESSAGE_TOO_LARGE");
  EXPECT_EQ(error_info->metadata().at("limit"), std::to_string(HostQuotas().message_bytes));
  EXPECT_FALSE(DetailOf<google::rpc::RetryInfo>(status).has_value());
  EXPECT_EQ(Load().num_errors_by_reason().at("MESSAGE_TOO_LARGE"), 1U);
}

TEST_F(ServerTest, AMessageFarBeyondTheLimitIsNotEvenRead) {
  MakeReady();
  v1::GenerateRequest request = TextRequestOf("r");
  request.set_text(
      std::string(HostQuotas().message_bytes + HostQuotas().refused_message_bytes + 1, 'x'));
  grpc::ClientContext context;
  v1::GenerateResponse response;
  EXPECT_EQ(generation_->Generate(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// As many connections as there are descriptors, of which this process needs two each.
TEST_F(ServerTest, ItAcceptsAgainWhenTooManyConnectionsHaveEnded) {
  engine_.AnswerWith([](const Submitted& s) { s.Finish(FinishReason::kEos, 0); });
  MakeReady();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  std::vector<int> clients;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server_->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  while (true) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) break;
    clients.push_back(fd);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  EXPECT_EQ(errno, EMFILE);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // attempts so far have failed
  for (const int fd : clients) close(fd);
  const auto generation = v1::Generation::NewStub(NewChannel());
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  v1::GenerateResponse response;
  const grpc::Status status = generation->Generate(&context, TextRequestOf("r"), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// gRPC decompresses before it checks the size: compressed messages are refused unread.
TEST_F(ServerTest, ACompressedMessageIsRefusedBeforeItIsUnpacked) {
  MakeReady();
  v1::GenerateRequest request = TextRequestOf("r");
  request.set_text(std::string(HostQuotas().message_bytes + 1, 'x'));
  testing::internal::CaptureStderr();
  for (const grpc_compression_algorithm packed : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(packed);
    v1::GenerateResponse response;
    const grpc::Status refused = generation_->Generate(&context, request, &response);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNIMPLEMENTED) << refused.error_message();
  }
  // Clients cannot fill the log.
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace bulkhead
