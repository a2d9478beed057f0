#include "runtime/service/grpc/vllm_engine_service.h"

#include "runtime/service/grpc/kv_events_call.h"
#include "runtime/service/grpc/tokenizer_call.h"
#include "runtime/service/grpc/vllm_embed_call.h"
#include "runtime/service/grpc/vllm_generate_call.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using Unary = grpc::ServerUnaryReactor;
using Stream = grpc::ServerWriteReactor<grpc::ByteBuffer>;
using grpc::ByteBuffer;
using grpc::CallbackServerContext;

constexpr char kNoFlush[] =
    "the prefix cache is not flushed: unused blocks are evicted on demand; start with "
    "--no-enable-prefix-caching to have none";
constexpr char kNoProfiler[] = "this server has no profiler; use `bulkhead bench` or perf";

std::shared_ptr<LocalCall> Refusal(ServiceCore* core, CallTransport* transport, const char* why) {
  return std::make_shared<LocalCall>(
      core, transport, LocalCall::Kind::kControl,
      [why](ServiceCore&, CallRequest&, AnswerBudget::Hold&) -> absl::StatusOr<MessagePieces> {
        return WithReason(absl::UnimplementedError(why), reason::kUnsupportedParameter);
      });
}

}  // namespace

Stream* VllmEngineService::Generate(CallbackServerContext* context, const ByteBuffer* request) {
  return RunStream(context, request, [this](CallTransport* transport) {
    return std::make_shared<VllmGenerateCall>(core_, transport);
  });
}

Stream* VllmEngineService::GetTokenizer(CallbackServerContext* context, const ByteBuffer* request) {
  return RunStream(context, request, [this](CallTransport* transport) {
    return std::make_shared<TokenizerCall>(core_, transport);
  });
}

Stream* VllmEngineService::SubscribeKvEvents(CallbackServerContext* context,
                                             const ByteBuffer* request) {
  return RunStream(context, request, [this](CallTransport* transport) {
    return std::make_shared<KvEventsCall>(core_, transport);
  });
}

Unary* VllmEngineService::Refuse(CallbackServerContext* context, const ByteBuffer* request,
                                 ByteBuffer* response, const char* why) {
  return RunUnary(context, request, response,
                  [this, why](CallTransport* transport) { return Refusal(core_, transport, why); });
}

Unary* VllmEngineService::Embed(CallbackServerContext* context, const ByteBuffer* request,
                                ByteBuffer* response) {
  return RunUnary(context, request, response, [this](CallTransport* transport) {
    return std::make_shared<VllmEmbedCall>(core_, transport);
  });
}

Unary* VllmEngineService::FlushCache(CallbackServerContext* context, const ByteBuffer* request,
                                     ByteBuffer* response) {
  return Refuse(context, request, response, kNoFlush);
}

Unary* VllmEngineService::StartProfile(CallbackServerContext* context, const ByteBuffer* request,
                                       ByteBuffer* response) {
  return Refuse(context, request, response, kNoProfiler);
}

Unary* VllmEngineService::StopProfile(CallbackServerContext* context, const ByteBuffer* request,
                                      ByteBuffer* response) {
  return Refuse(context, request, response, kNoProfiler);
}

}  // namespace bulkhead
