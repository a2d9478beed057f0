// UnaryCall: a call with one request and one answer that does not involve the engine, from its
// request to its status.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  // Computes the answer to a request and clears the request as early as possible. `hold` then
  // covers the answer's bytes.
  using Respond = std::function<absl::StatusOr<grpc::ByteBuffer>(
      ServiceCore& core, grpc::ByteBuffer& request, AnswerBudget::Hold& hold)>;
  enum class Kind {
    kWork,     // refused when the host is short of memory; a long request is queued behind other
               // long ones
    kControl,  // never refused or queued; its request is short
  };
  static constexpr int64_t kMaxControlBytes = int64_t{64} << 10;

  // Owns itself until gRPC is done with it. `response` belongs to gRPC, until Finish.
  static grpc::ServerUnaryReactor* Run(ServiceCore* core, grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                       Kind kind, Respond respond);
  void OnDone() override;

 private:
  UnaryCall(ServiceCore* core, grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
            Respond respond)
      : core_(core), context_(context), response_(response), respond_(std::move(respond)) {}
  void RespondAndEnd(grpc::ByteBuffer request);
  void End(const absl::Status& status);

  ServiceCore* const core_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  const Respond respond_;
  grpc_call* const call_ = context_->c_call();
  AnswerBudget::Hold hold_;
};

}  // namespace bulkhead
