// bulkhead.v1.Generation on gRPC's callback API.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>

#include "absl/status/status.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

// What a stream may hold for a client that reads slower than tokens come; beyond it the stream is
// cut with RESOURCE_EXHAUSTED (SLOW_READER).
inline constexpr size_t kMaxBufferedBytes = size_t{1} << 20;

class GenerationService final : public v1::Generation::CallbackService {
 public:
  explicit GenerationService(ServiceCore* core) : core_(core) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const v1::GenerateRequest* request,
                                     v1::GenerateResponse* response) override;
  grpc::ServerWriteReactor<v1::GenerateEvent>* GenerateStream(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const v1::ScoreRequest* request,
                                  v1::ScoreResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;

 private:
  // Answers with what `convert` comes to: here where the input is short, else behind other long
  // ones.
  grpc::ServerUnaryReactor* Convert(grpc::CallbackServerContext* context, size_t bytes,
                                    size_t most_here_bytes, std::function<absl::Status()> convert);

  ServiceCore* const core_;
};

}  // namespace bulkhead
