#include <gmock/gmock.h>

#include "runtime/service/grpc/health_service.h"
#include "tests/runtime/service/grpc/service_fixture.h"

namespace bulkhead {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class HealthServiceTest : public ServiceFixture {
 protected:
  HealthCheckResponse::ServingStatus Check(const std::string& service) {
    HealthCheckRequest request;
    request.set_service(service);
    grpc::ClientContext context;
    HealthCheckResponse response;
    const grpc::Status status = health_->Check(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.status();
  }
};

TEST_F(HealthServiceTest, CheckFollowsTheServersLife) {
  const std::vector<std::string> names = {"", "bulkhead.v1.Generation", "bulkhead.v1.Control",
                                          "vllm.grpc.engine.VllmEngine"};
  for (const std::string& name : names) EXPECT_EQ(Check(name), HealthCheckResponse::NOT_SERVING);
  MakeReady();
  for (const std::string& name : names) EXPECT_EQ(Check(name), HealthCheckResponse::SERVING);
  core_->state.SetDraining();
  for (const std::string& name : names) EXPECT_EQ(Check(name), HealthCheckResponse::NOT_SERVING);
}

TEST_F(HealthServiceTest, CheckDoesNotKnowOtherServices) {
  HealthCheckRequest request;
  request.set_service("no.such.Service");
  grpc::ClientContext context;
  HealthCheckResponse response;
  EXPECT_EQ(health_->Check(&context, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HealthServiceTest, ARequestThatIsTooLongIsNotParsed) {
  HealthCheckRequest request;
  request.set_service(std::string(64 << 10, 'x'));
  grpc::ClientContext context, watching;
  HealthCheckResponse response;
  const grpc::Status status = health_->Check(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(status), "MESSAGE_TOO_LARGE");
  auto reader = health_->Watch(&watching, request);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(ReasonOf(reader->Finish()), "MESSAGE_TOO_LARGE");
}

TEST_F(HealthServiceTest, WatchIsToldOfEveryChange) {
  grpc::ClientContext context;
  auto reader = health_->Watch(&context, HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  MakeReady();
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  core_->SetLost(absl::UnavailableError("rank 1 was lost"));
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(HealthServiceTest, WatchOfAnUnknownServiceStaysUnknown) {
  HealthCheckRequest request;
  request.set_service("no.such.Service");
  grpc::ClientContext context;
  auto reader = health_->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  MakeReady();
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_FALSE(reader->Read(&response));
}

TEST_F(HealthServiceTest, WatchesAreBoundedSoThatTheyCannotTakeEveryCall) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<HealthCheckResponse>>> readers;
  HealthCheckResponse response;
  for (size_t i = 0; i < HealthService::kMaxWatches; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(health_->Watch(contexts.back().get(), HealthCheckRequest()));
    ASSERT_TRUE(readers.back()->Read(&response));
  }
  grpc::ClientContext context;
  auto one_more = health_->Watch(&context, HealthCheckRequest());
  EXPECT_FALSE(one_more->Read(&response));
  EXPECT_EQ(one_more->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (auto& one : contexts) one->TryCancel();
  for (auto& reader : readers) reader->Finish();
}

TEST_F(HealthServiceTest, AShutdownEndsEveryWatch) {
  grpc::ClientContext context;
  auto reader = health_->Watch(&context, HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  server_->Shutdown(absl::InfiniteDuration());
  while (reader->Read(&response)) EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace bulkhead
