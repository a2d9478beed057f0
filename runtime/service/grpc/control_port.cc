#include "runtime/service/grpc/control_port.h"

#include <grpcpp/support/server_interceptor.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/status.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "runtime/service/grpc/raw_message.h"
#include "runtime/service/grpc/status_conversion.h"
#include "runtime/service/guard/connection_guard.h"
#include "runtime/service/local_call.h"

namespace bulkhead {
namespace {

using grpc::experimental::InterceptionHookPoints;

// Requests that gRPC cannot parse (a string field that is not UTF-8, a truncated message) never
// reach a service with typed messages: gRPC 1.51 answers UNIMPLEMENTED with an empty message, which
// our own services never do. This replaces it by the answer of services that parse requests
// themselves.
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
    // UNIMPLEMENTED is correct for a method that does not exist. gRPC treats those as bidirectional
    // streaming, which none of our methods uses.
    const bool exists = info->type() != grpc::experimental::ServerRpcInfo::Type::BIDI_STREAMING;
    return exists ? new Explainer : nullptr;  // owned by gRPC
  }
};

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr int kMaxThreads = 24;  // each Watch, and each Drain that waits, occupies one
constexpr int kMaxWaits = 12;
constexpr std::chrono::milliseconds kLook{100};

// Counts a waiting call during its lifetime.
class Wait {
 public:
  explicit Wait(std::atomic<int>& waits) : waits_(waits), number_(++waits) {}
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  ~Wait() { --waits_; }
  grpc::Status refusal() const {
    if (number_ <= kMaxWaits) return grpc::Status::OK;
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat(kMaxWaits,
                         " calls of Watch and of Drain with `wait` are open here, the limit; do "
                         "not wait, or wait on the main port")};
  }

 private:
  std::atomic<int>& waits_;
  const int number_;
};

// Accounted in total by kControlPortBytes.
HostQuotas Quotas() {
  HostQuotas quotas;
  quotas.message_bytes = LocalCall::kMaxControlBytes;
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
  Control(ServiceCore* core, std::atomic<int>& waits) : answers_(core), waits_(waits) {}

  grpc::Status GetServerInfo(grpc::ServerContext* context, const v1::GetServerInfoRequest* request,
                             v1::ServerInfo* response) override {
    return Run(context, *request, response, &ControlAnswers::GetServerInfo);
  }
  grpc::Status GetModelInfo(grpc::ServerContext* context, const v1::GetModelInfoRequest* request,
                            v1::ModelInfo* response) override {
    return Run(context, *request, response, &ControlAnswers::GetModelInfo);
  }
  grpc::Status GetLoad(grpc::ServerContext* context, const v1::GetLoadRequest* request,
                       v1::LoadInfo* response) override {
    return Run(context, *request, response, &ControlAnswers::GetLoad);
  }
  grpc::Status GetRankTable(grpc::ServerContext* context, const v1::GetRankTableRequest* request,
                            v1::RankTable* response) override {
    return Run(context, *request, response, &ControlAnswers::GetRankTable);
  }
  grpc::Status SetLimits(grpc::ServerContext* context, const v1::SetLimitsRequest* request,
                         v1::SetLimitsResponse* response) override {
    return Run(context, *request, response, &ControlAnswers::SetLimits);
  }
  grpc::Status Abort(grpc::ServerContext* context, const v1::AbortRequest* request,
                     v1::AbortResponse* response) override {
    return Run(context, *request, response, &ControlAnswers::Abort);
  }
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override {
    const std::string client = ClientAddress(context->peer());
    if (!request->wait()) return ToGrpcStatus(answers_.Drain(*request, client, response));
    const Wait wait(waits_);
    if (!wait.refusal().ok()) return wait.refusal();
    // Owned separately: the last answer may come while this call is cancelled.
    struct End {
      absl::Notification reached;
      DrainOutcome outcome;
    };
    const auto end = std::make_shared<End>();
    const auto ended = std::make_shared<const DrainEnd>([end](const DrainOutcome& outcome) {
      end->outcome = outcome;
      end->reached.Notify();
    });
    const absl::Status begun = answers_.Drain(*request, client, response, ended);
    if (!begun.ok()) return ToGrpcStatus(begun);
    while (!end->reached.HasBeenNotified()) {
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
      std::this_thread::sleep_for(kLook);
    }
    response->set_num_requests_finished(static_cast<uint32_t>(end->outcome.finished));
    response->set_num_requests_cut(static_cast<uint32_t>(end->outcome.cut));
    return grpc::Status::OK;
  }

 private:
  template <typename Request, typename Response>
  grpc::Status Run(const grpc::ServerContext* context, const Request& request, Response* response,
                   absl::Status (ControlAnswers::*method)(const Request&, const std::string&,
                                                          Response*)) {
    return ToGrpcStatus((answers_.*method)(request, ClientAddress(context->peer()), response));
  }

  ControlAnswers answers_;
  std::atomic<int>& waits_;
};

class ControlPort::Health final : public grpc::health::v1::Health::Service {
 public:
  Health(const HealthService* health, std::atomic<int>& waits) : health_(health), waits_(waits) {}

  grpc::Status Check(grpc::ServerContext* /*context*/, const HealthCheckRequest* request,
                     HealthCheckResponse* response) override {
    return ToGrpcStatus(health_->Check(request->service(), response));
  }

  grpc::Status Watch(grpc::ServerContext* context, const HealthCheckRequest* request,
                     grpc::ServerWriter<HealthCheckResponse>* writer) override {
    const Wait wait(waits_);
    if (!wait.refusal().ok()) return wait.refusal();
    HealthCheckResponse written;
    bool any = false;
    while (!context->IsCancelled() && !health_->is_stopping()) {
      HealthCheckResponse now;
      if (!health_->Check(request->service(), &now).ok()) {
        now.set_status(HealthCheckResponse::SERVICE_UNKNOWN);
      }
      if (!any || now.status() != written.status()) {
        if (!writer->Write(now)) break;
        written = now;
        any = true;
      }
      std::this_thread::sleep_for(kLook);
    }
    return {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
  }

 private:
  const HealthService* const health_;
  std::atomic<int>& waits_;
};

absl::StatusOr<std::unique_ptr<ControlPort>> ControlPort::Start(int port, ServiceCore* core,
                                                                HealthService* health) {
  auto bound = GuardedPort::Bind("127.0.0.1", port, "--control-port");
  if (absl::IsNotFound(bound.status())) bound = GuardedPort::Bind("::1", port, "--control-port");
  if (!bound.ok()) return bound.status();
  return std::unique_ptr<ControlPort>(new ControlPort(*std::move(bound), core, health));
}

ControlPort::ControlPort(std::unique_ptr<GuardedPort> port, ServiceCore* core,
                         HealthService* health)
    : port_(std::move(port)),
      control_(std::make_unique<Control>(core, waits_)),
      health_(std::make_unique<Health>(health, waits_)) {
  const HostQuotas quotas = Quotas();
  grpc::ServerBuilder builder;
  port_->AddTo(builder, quotas, kMaxThreads);
  builder.RegisterService(health_.get());
  builder.RegisterService(control_.get());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<ExplainerFactory>());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  server_ = builder.BuildAndStart();
  BH_CHECK(server_ != nullptr);
  port_->Start(quotas, &counters_, &errors_, nullptr, &core->access);
}

ControlPort::~ControlPort() {
  const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(500);
  port_->EndCalls(absl::Milliseconds(500));
  server_->Shutdown(deadline);
  server_->Wait();
  server_.reset();
  port_->Stop(absl::Milliseconds(100));
}

}  // namespace bulkhead
