#include "tests/runtime/service/grpc/service_fixture.h"

#include <cstdlib>

namespace bulkhead {

// As main does: clients must not be able to write to standard error.
const int kNoLines = setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);

void ServiceFixture::SetUp() {
  GrpcServer::Options options;
  options.port = 0;
  server_ = nullptr;
  core_ = std::make_unique<ServiceCore>(quotas_);
  auto server = GrpcServer::Start(options, core_.get());
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  channel_ = NewChannel();
  generation_ = v1::Generation::NewStub(channel_);
  control_ = v1::Control::NewStub(channel_);
  health_ = grpc::health::v1::Health::NewStub(channel_);
}

void ServiceFixture::TearDown() {
  if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
}

ServingParts ServiceFixture::Parts() {
  ServingParts parts;
  parts.inbox = &engine_;
  parts.control = &engine_;
  parts.rules.tokenizer = &tokenizer_;
  parts.rules.served_model_names = {"letters"};
  parts.rules.vocab_size = LetterTokenizer::kVocabSize;
  parts.rules.max_model_len = kTestModelLen;
  parts.server_info.set_max_num_queued_reqs(7);
  parts.server_info.set_num_kv_blocks(3);
  parts.server_info.set_block_size(16);
  parts.model_info.set_served_model_name("letters");
  return parts;
}

v1::LoadInfo ServiceFixture::Load() const {
  grpc::ClientContext context;
  v1::LoadInfo load;
  EXPECT_TRUE(control_->GetLoad(&context, {}, &load).ok());
  return load;
}

std::shared_ptr<grpc::Channel> ServiceFixture::NewChannel() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(server_->target(), grpc::InsecureChannelCredentials(),
                                   arguments);
}

v1::GenerateRequest TextRequestOf(const std::string& request_id) {
  v1::GenerateRequest request;
  request.set_request_id(request_id);
  request.set_text("ab");
  return request;
}

std::string ReasonOf(const grpc::Status& status) {
  const auto error_info = DetailOf<google::rpc::ErrorInfo>(status);
  return error_info.has_value() ? error_info->reason() : "";
}

}  // namespace bulkhead
