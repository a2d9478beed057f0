#include "launcher/bench/serve/null_server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace bulkhead {
namespace {

constexpr uint32_t kDefaultTokens = 16;

class NullStream final : public grpc::ServerWriteReactor<v1::GenerateEvent> {
 public:
  NullStream(const v1::GenerateRequest& request, int tokens_per_message)
      : prompt_tokens_(request.token_ids().ids_size()),
        max_tokens_(request.stopping().has_max_tokens() ? request.stopping().max_tokens()
                                                        : kDefaultTokens),
        tokens_per_message_(tokens_per_message) {
    v1::Accepted& accepted = *event_.mutable_accepted();
    accepted.set_prompt_tokens(prompt_tokens_);
    accepted.set_max_tokens(max_tokens_);
    StartWrite(&event_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok || event_.has_finished()) {
      Finish(grpc::Status::OK);
    } else if (written_ < max_tokens_) {
      WriteTokens();
    } else {
      v1::Finished& finished = *event_.mutable_finished();
      finished.set_reason(v1::FINISH_REASON_MAX_TOKENS);
      finished.mutable_usage()->set_prompt_tokens(prompt_tokens_);
      finished.mutable_usage()->set_completion_tokens(max_tokens_);
      StartWrite(&event_);
    }
  }
  void OnDone() override { delete this; }

 private:
  void WriteTokens() {
    v1::Delta& delta = *event_.mutable_delta();
    delta.Clear();
    delta.set_position(written_);
    const uint32_t count = std::min<uint32_t>(tokens_per_message_, max_tokens_ - written_);
    for (uint32_t i = 0; i < count; ++i) delta.add_tokens()->set_id(written_++);
    delta.set_text("null");
    StartWrite(&event_);
  }

  const uint32_t prompt_tokens_;
  const uint32_t max_tokens_;
  const int tokens_per_message_;
  uint32_t written_ = 0;
  v1::GenerateEvent event_;
};

class NullGeneration final : public v1::Generation::CallbackService {
 public:
  explicit NullGeneration(int tokens_per_message) : tokens_per_message_(tokens_per_message) {}

  grpc::ServerWriteReactor<v1::GenerateEvent>* GenerateStream(
      grpc::CallbackServerContext* /*context*/, const v1::GenerateRequest* request) override {
    return new NullStream(*request, tokens_per_message_);  // deletes itself in OnDone
  }

 private:
  const int tokens_per_message_;
};

}  // namespace

struct NullServer::Parts {
  explicit Parts(int tokens_per_message) : generation(tokens_per_message) {}
  NullGeneration generation;
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

absl::StatusOr<std::unique_ptr<NullServer>> NullServer::Start(int tokens_per_message) {
  auto parts = std::make_unique<Parts>(tokens_per_message);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &parts->port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(&parts->generation);
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr) {
    return WithExitCode(absl::UnavailableError("the null server could not listen on 127.0.0.1"),
                        ExitCode::kCannotBind);
  }
  return std::unique_ptr<NullServer>(new NullServer(std::move(parts)));
}

NullServer::NullServer(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)), target_(absl::StrCat("127.0.0.1:", parts_->port)) {}

NullServer::~NullServer() { parts_->server->Shutdown(); }

}  // namespace bulkhead
