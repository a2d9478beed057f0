#include "runtime/service/control_port.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/malformed_request.h"
#include "runtime/service/unary_call.h"

namespace bulkhead {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr int kMaxThreads = 24;  // each Watch occupies one
constexpr int kMaxWatches = 12;
constexpr std::chrono::milliseconds kWatchInterval{100};

// Accounted in total by kControlPortBytes.
HostQuotas Quotas() {
  HostQuotas quotas;
  quotas.message_bytes = UnaryCall::kMaxControlBytes;
  quotas.refused_message_bytes = 0;  // gRPC parses what it reads
  quotas.grpc_bytes = int64_t{4} << 20;
  quotas.max_connections = 32;
  quotas.max_open_calls = 128;
  quotas.request_bytes = int64_t{2} << 20;
  return quotas;
}

}  // namespace

class ControlPort::Control final : public v1::Control::Service {
 public:
  explicit Control(ServiceCore* core) : answers_(core) {}

  grpc::Status GetServerInfo(grpc::ServerContext* /*context*/,
                             const v1::GetServerInfoRequest* request,
                             v1::ServerInfo* response) override {
    return ToGrpcStatus(answers_.GetServerInfo(*request, response));
  }
  grpc::Status GetModelInfo(grpc::ServerContext* /*context*/,
                            const v1::GetModelInfoRequest* request,
                            v1::ModelInfo* response) override {
    return ToGrpcStatus(answers_.GetModelInfo(*request, response));
  }
  grpc::Status GetLoad(grpc::ServerContext* /*context*/, const v1::GetLoadRequest* request,
                       v1::LoadInfo* response) override {
    return ToGrpcStatus(answers_.GetLoad(*request, response));
  }
  grpc::Status GetRankTable(grpc::ServerContext* /*context*/,
                            const v1::GetRankTableRequest* request,
                            v1::RankTable* response) override {
    return ToGrpcStatus(answers_.GetRankTable(*request, response));
  }
  grpc::Status SetLimits(grpc::ServerContext* context, const v1::SetLimitsRequest* request,
                         v1::SetLimitsResponse* response) override {
    return ToGrpcStatus(answers_.SetLimits(*request, context->peer(), response));
  }
  grpc::Status Abort(grpc::ServerContext* /*context*/, const v1::AbortRequest* request,
                     v1::AbortResponse* response) override {
    return ToGrpcStatus(answers_.Abort(*request, response));
  }
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override {
    return ToGrpcStatus(answers_.Drain(*request, context->peer(), response));
  }

 private:
  ControlAnswers answers_;
};

class ControlPort::Health final : public grpc::health::v1::Health::Service {
 public:
  explicit Health(const HealthService* health) : health_(health) {}

  grpc::Status Check(grpc::ServerContext* /*context*/, const HealthCheckRequest* request,
                     HealthCheckResponse* response) override {
    return ToGrpcStatus(health_->Check(request->service(), response));
  }

  grpc::Status Watch(grpc::ServerContext* context, const HealthCheckRequest* request,
                     grpc::ServerWriter<HealthCheckResponse>* writer) override {
    if (++watches_ > kMaxWatches) {
      --watches_;
      return {grpc::StatusCode::RESOURCE_EXHAUSTED,
              absl::StrCat(kMaxWatches,
                           " watches are open here, the limit; use Check, or watch on "
                           "the main port")};
    }
    HealthCheckResponse written;
    bool any = false;
    while (!context->IsCancelled() && !stopping_) {
      HealthCheckResponse now;
      if (!health_->Check(request->service(), &now).ok()) {
        now.set_status(HealthCheckResponse::SERVICE_UNKNOWN);
      }
      if (!any || now.status() != written.status()) {
        if (!writer->Write(now)) break;
        written = now;
        any = true;
      }
      std::this_thread::sleep_for(kWatchInterval);
    }
    --watches_;
    return {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
  }

  void EndWatches() { stopping_ = true; }

 private:
  const HealthService* const health_;
  std::atomic<int> watches_{0};
  std::atomic<bool> stopping_{false};
};

absl::StatusOr<std::unique_ptr<ControlPort>> ControlPort::Start(int port, ServiceCore* core,
                                                                HealthService* health) {
  BH_ASSIGN_OR_RETURN(std::unique_ptr<GuardedPort> bound,
                      GuardedPort::Bind("127.0.0.1", port, "--control-port"));
  return std::unique_ptr<ControlPort>(new ControlPort(std::move(bound), core, health));
}

ControlPort::ControlPort(std::unique_ptr<GuardedPort> port, ServiceCore* core,
                         HealthService* health)
    : port_(std::move(port)),
      control_(std::make_unique<Control>(core)),
      health_(std::make_unique<Health>(health)) {
  const HostQuotas quotas = Quotas();
  grpc::ServerBuilder builder;
  port_->AddTo(builder, quotas, kMaxThreads);
  builder.RegisterService(health_.get());
  builder.RegisterService(control_.get());
  builder.experimental().SetInterceptorCreators(ExplainMalformedRequests());
  server_ = builder.BuildAndStart();
  BH_CHECK(server_ != nullptr);
  port_->Start(quotas, &counters_, &errors_, nullptr);
}

ControlPort::~ControlPort() {
  port_->StopListening();
  health_->EndWatches();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  server_->Wait();
  server_.reset();
  port_->Stop(absl::Milliseconds(100));
}

}  // namespace bulkhead
