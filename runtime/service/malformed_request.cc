#include "runtime/service/malformed_request.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using grpc::experimental::InterceptionHookPoints;

class Explainer final : public grpc::experimental::Interceptor {
 public:
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED &&
          status.error_message().empty()) {
        methods->ModifySendStatus(ToGrpcStatus(MalformedRequest(kCannotParse)));
      }
    }
    methods->Proceed();
  }
};

class ExplainerFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    // UNIMPLEMENTED is correct for a method that does not exist. gRPC's placeholder for those is
    // bidirectional streaming, unlike all our methods.
    const bool exists = info->type() != grpc::experimental::ServerRpcInfo::Type::BIDI_STREAMING;
    return exists ? new Explainer : nullptr;  // owned by gRPC
  }
};

}  // namespace

absl::Status MalformedRequest(absl::string_view why) {
  return WithReason(absl::InvalidArgumentError(
                        absl::StrCat("the request does not parse: ", why,
                                     "; send text as UTF-8, and anything else as token ids")),
                    reason::kMalformedRequest);
}

InterceptorFactories ExplainMalformedRequests() {
  InterceptorFactories factories;
  factories.push_back(std::make_unique<ExplainerFactory>());
  return factories;
}

}  // namespace bulkhead
