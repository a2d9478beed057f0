#include "runtime/service/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "memory/host_memory.h"
#include "runtime/service/control_port.h"
#include "runtime/service/control_service.h"
#include "runtime/service/generation_service.h"
#include "runtime/service/guarded_port.h"
#include "runtime/service/health_service.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

constexpr int kMaxSyncThreads = 32;  // reflection's; the other services are callback services

std::string NewEpoch() {
  std::random_device device;
  return absl::StrFormat("%08x%08x", device(), device());
}

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
  explicit Parts(const HostQuotas& quotas)
      : core(NewEpoch(), quotas), generation(&core), control(&core) {
    core.state.SetListener([this](bool serving) { health.SetServing(serving); });
  }

  ServiceCore core;
  HealthService health;
  GenerationService generation;
  ControlService control;
  std::mutex shutdown_mutex;
  std::unique_ptr<HostPressure> pressure;
  std::unique_ptr<GuardedPort> port;
  std::unique_ptr<ControlPort> control_port;  // null after Shutdown
  std::string control_target;
  std::unique_ptr<grpc::Server> server;  // null after Shutdown
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Options& options) {
  PrepareLibrary();
  auto parts = std::make_unique<Parts>(options.quotas);
  BH_ASSIGN_OR_RETURN(parts->port, GuardedPort::Bind(options.host, options.port));
  BH_ASSIGN_OR_RETURN(parts->control_port,
                      ControlPort::Start(options.control_port, &parts->core, &parts->health));
  parts->control_target = parts->control_port->target();
  parts->pressure =
      std::make_unique<HostPressure>(options.quotas.total_bytes, &parts->core.host, ResidentBytes);
  grpc::ServerBuilder builder;
  parts->port->AddTo(builder, options.quotas, kMaxSyncThreads);
  builder.RegisterService(&parts->health);
  builder.RegisterService(&parts->generation);
  builder.RegisterService(&parts->control);
  parts->server = builder.BuildAndStart();
  BH_CHECK(parts->server != nullptr);
  parts->port->Start(options.quotas, &parts->core.host, &parts->core.errors, parts->pressure.get());
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(parts)));
}

GrpcServer::GrpcServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

GrpcServer::~GrpcServer() { Shutdown(absl::ZeroDuration()); }

const std::string& GrpcServer::target() const { return parts_->port->target(); }

int GrpcServer::port() const { return parts_->port->port(); }

const std::string& GrpcServer::control_target() const { return parts_->control_target; }

const std::string& GrpcServer::epoch() const { return parts_->core.state.epoch(); }

void GrpcServer::SetReady(ServingParts parts) {
  parts_->pressure->SetReady();
  parts_->core.state.SetReady(std::move(parts));
}

void GrpcServer::SetDraining() { parts_->core.state.SetDraining(); }

void GrpcServer::SetLost(const absl::Status& why, LostRank lost) {
  parts_->core.state.SetLost(why, std::move(lost));
  // Explained by the lost state: the first cause, with its rank.
  parts_->core.calls.EndAll(absl::UnavailableError(why.message()));
}

bool GrpcServer::FlushAndWait(absl::Duration timeout) {
  const auto begin = std::chrono::steady_clock::now();
  if (!parts_->core.calls.WaitUntilClosed(timeout)) return false;
  return parts_->port->Flush(timeout - absl::FromChrono(std::chrono::steady_clock::now() - begin));
}

void GrpcServer::Shutdown(absl::Duration grace) {
  const std::lock_guard<std::mutex> lock(parts_->shutdown_mutex);
  if (parts_->server == nullptr) return;
  parts_->core.state.SetDraining();
  parts_->health.EndWatches();
  parts_->core.calls.WaitUntilClosed(grace);
  parts_->core.calls.EndAll(
      WithReason(absl::UnavailableError("the server is stopping"), reason::kStopping));
  parts_->port->StopListening();
  // Unread answers are dropped now: nothing may wait for their clients.
  parts_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  parts_->server->Wait();
  parts_->server.reset();
  parts_->port->Stop(absl::Milliseconds(500));
  parts_->control_port.reset();
}

}  // namespace bulkhead
