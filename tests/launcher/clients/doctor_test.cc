#include "launcher/clients/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace bulkhead {
namespace {

// A server with one rank, whose texts move a terminal's cursor.
class OddControl : public v1::Control::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override {
    info->set_version("1\x1b[2J");
    return grpc::Status::OK;
  }
  grpc::Status GetModelInfo(grpc::ServerContext*, const v1::GetModelInfoRequest*,
                            v1::ModelInfo* info) override {
    info->set_served_model_name("model\r");
    return grpc::Status::OK;
  }
  grpc::Status GetRankTable(grpc::ServerContext*, const v1::GetRankTableRequest*,
                            v1::RankTable* table) override {
    table->add_ranks()->set_host("host\x07");
    return grpc::Status::OK;
  }
  grpc::Status GetLoad(grpc::ServerContext*, const v1::GetLoadRequest*, v1::LoadInfo*) override {
    return grpc::Status::OK;
  }
  grpc::Status SetLimits(grpc::ServerContext*, const v1::SetLimitsRequest*,
                         v1::SetLimitsResponse*) override {
    return grpc::Status::OK;
  }
};

TEST(Doctor, AServersTextsDoNotControlTheTerminal) {
  OddControl control;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&control);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  DoctorOptions options;
  options.target = absl::StrCat("127.0.0.1:", port);
  testing::internal::CaptureStdout();
  const absl::Status status = RunDoctor(options);
  const std::string printed = testing::internal::GetCapturedStdout();
  server->Shutdown();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(printed, testing::HasSubstr(": model\\x0d, 0 ranks, bulkhead 1\\x1b[2J, up 0"));
  EXPECT_THAT(printed, testing::HasSubstr("rank 0 on host\\x07 is the bottleneck"));
}

}  // namespace
}  // namespace bulkhead
