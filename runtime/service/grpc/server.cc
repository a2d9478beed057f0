#include "runtime/service/grpc/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/status.h"
#include "runtime/service/grpc/control_port.h"
#include "runtime/service/grpc/control_service.h"
#include "runtime/service/grpc/generation_service.h"
#include "runtime/service/grpc/guarded_port.h"
#include "runtime/service/grpc/health_service.h"
#include "runtime/service/grpc/vllm_engine_service.h"

namespace bulkhead {
namespace {

constexpr int kMaxSyncThreads = 32;  // reflection's; the other services are callback services

// Process-wide settings: our own health service, reflection on every server, and no protobuf log
// lines on standard error, which any client could trigger with invalid UTF-8.
void PrepareLibrary() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc_init();  // never shut down: that may wait 10 s for a polling thread
    grpc::EnableDefaultHealthCheckService(false);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    google::protobuf::SetLogHandler(nullptr);
  });
}

}  // namespace

struct GrpcServer::Parts {
  explicit Parts(ServiceCore* service_core)
      : core(service_core), generation(core), control(core), vllm_engine(core) {}

  ServiceCore* const core;
  HealthService health;
  GenerationService generation;
  ControlService control;
  VllmEngineService vllm_engine;
  std::unique_ptr<GuardedPort> port;
  std::string control_target;
  absl::Mutex shutdown_mutex;
  // Null after Shutdown.
  std::unique_ptr<ControlPort> control_port ABSL_GUARDED_BY(shutdown_mutex);
  std::unique_ptr<grpc::Server> server ABSL_GUARDED_BY(shutdown_mutex);
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Options& options,
                                                              ServiceCore* core) {
  PrepareLibrary();
  auto parts = std::make_unique<Parts>(core);
  const absl::MutexLock lock(&parts->shutdown_mutex);
  BH_ASSIGN_OR_RETURN(parts->port,
                      GuardedPort::Bind(options.host, options.port, "--port", options.tls));
  BH_ASSIGN_OR_RETURN(parts->control_port,
                      ControlPort::Start(options.control_port, core, &parts->health));
  parts->control_target = parts->control_port->target();
  grpc::ServerBuilder builder;
  parts->port->AddTo(builder, core->quotas, kMaxSyncThreads);
  builder.RegisterService(&parts->health);
  builder.RegisterService(&parts->generation);
  builder.RegisterService(&parts->control);
  builder.RegisterService(&parts->vllm_engine);
  parts->server = builder.BuildAndStart();
  BH_CHECK(parts->server != nullptr);
  parts->port->Start(core->quotas, &core->host, &core->errors, &core->pressure, &core->access);
  core->state.SetListener(
      [health = &parts->health](ServingPhase phase) { health->SetPhase(phase); });
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(parts)));
}

GrpcServer::GrpcServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

GrpcServer::~GrpcServer() { Shutdown(absl::ZeroDuration()); }

const std::string& GrpcServer::target() const { return parts_->port->target(); }

int GrpcServer::port() const { return parts_->port->port(); }

const std::string& GrpcServer::control_target() const { return parts_->control_target; }

bool GrpcServer::FlushAndWait(absl::Duration timeout) {
  const auto begin = std::chrono::steady_clock::now();
  if (!parts_->core->calls.WaitUntilClosed(timeout)) return false;
  return parts_->port->Flush(timeout - absl::FromChrono(std::chrono::steady_clock::now() - begin));
}

void GrpcServer::Shutdown(absl::Duration grace) {
  const absl::MutexLock lock(&parts_->shutdown_mutex);
  if (parts_->server == nullptr) return;
  parts_->core->Stop(grace);
  // Unread answers are dropped then: nothing may wait for their clients.
  const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(500);
  parts_->port->EndCalls(absl::Milliseconds(500));
  parts_->server->Shutdown(deadline);
  parts_->server->Wait();
  parts_->server.reset();
  parts_->port->Stop(absl::Milliseconds(500));
  parts_->control_port.reset();
}

}  // namespace bulkhead
