// A server on a free loopback port with a fake engine, and a client.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "bulkhead/v1/generation.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "runtime/service/grpc/server.h"
#include "tests/runtime/service/fake_engine.h"
#include "tests/runtime/service/letter_tokenizer.h"

namespace bulkhead {

class ServiceFixture : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  ServingParts Parts();
  void MakeReady() { core_->SetReady(Parts()); }
  v1::LoadInfo Load() const;
  // A separate connection, not shared with other clients of this process.
  std::shared_ptr<grpc::Channel> NewChannel() const;

  HostQuotas quotas_;  // until SetUp
  LetterTokenizer tokenizer_;
  FakeEngine engine_;
  std::unique_ptr<ServiceCore> core_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> generation_;
  std::unique_ptr<v1::Control::Stub> control_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

// {"ab"} with the given id.
v1::GenerateRequest TextRequestOf(const std::string& request_id);

// The details in a client's status.
template <typename Message>
std::optional<Message> DetailOf(const grpc::Status& status) {
  google::rpc::Status rpc;
  if (!rpc.ParseFromString(status.error_details())) return std::nullopt;
  for (const auto& detail : rpc.details()) {
    Message message;
    if (detail.UnpackTo(&message)) return message;
  }
  return std::nullopt;
}
std::string ReasonOf(const grpc::Status& status);

}  // namespace bulkhead
