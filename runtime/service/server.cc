#include "runtime/service/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "memory/check.h"
#include "memory/status.h"
#include "runtime/service/control_service.h"
#include "runtime/service/generation_service.h"
#include "runtime/service/health_service.h"
#include "runtime/service/listen_address.h"
#include "runtime/service/listener.h"
#include "runtime/service/malformed_request.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

constexpr int kMinRecvPingIntervalMs = 10'000;
constexpr int kKeepaliveTimeMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr int64_t kBufferQuotaBytes = int64_t{256} << 20;
constexpr int kMaxSyncThreads = 32;
// Calls of one connection; more wait at the client. What gRPC keeps for a call, some 20 KiB, is in
// no quota of its.
constexpr int kMaxConcurrentStreams = 8192;

std::string NewEpoch() {
  std::random_device device;
  return absl::StrFormat("%08x%08x", device(), device());
}

// Process-wide switches: our own health service, reflection on every server, and no lines of
// protobuf's on standard error, which any client could fill with requests that are not UTF-8.
void PrepareLibrary() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc_init();  // for good: the library's last shutdown may wait 10 s for a thread that polls
    grpc::EnableDefaultHealthCheckService(false);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    google::protobuf::SetLogHandler(nullptr);
  });
}

void SetLimits(grpc::ServerBuilder& builder, const HostQuotas& quotas) {
  // What is a little too long is read, and refused with the limit and a reason.
  builder.SetMaxReceiveMessageSize(static_cast<int>(quotas.message_bytes + kRefusedMessageBytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  // gRPC unpacks all of a message before it looks at its size: a few megabytes would become
  // gigabytes.
  for (const grpc_compression_algorithm packed : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(packed, false);
  }
  // A generation is silent for as long as a step takes: clients may ping to see that we live.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinRecvPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // A client that vanished without a word is found, and its blocks are freed.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  grpc::ResourceQuota quota("bulkhead");
  quota.Resize(static_cast<size_t>(quotas.grpc_bytes));
  quota.SetMaxThreads(kMaxSyncThreads);
  builder.SetResourceQuota(quota);
  // The callback services have threads of their own; these serve reflection alone.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
}

}  // namespace

int64_t BufferQuotaBytes(int max_model_len) {
  return kBufferQuotaBytes + int64_t{16} * MaxMessageBytes(max_model_len);
}

int MaxMessageBytes(int max_model_len) {
  constexpr int64_t kLeast = int64_t{4} << 20;
  constexpr int64_t kMost = int64_t{1} << 30;
  constexpr int64_t kBytesPerToken = 16;  // of text, which is more than ids need
  constexpr int64_t kBesides = int64_t{1} << 20;
  const int64_t wanted = kBytesPerToken * max_model_len + kBesides;
  return static_cast<int>(std::clamp(wanted, kLeast, kMost));
}

struct GrpcServer::Parts {
  explicit Parts(const HostQuotas& quotas)
      : core(NewEpoch(), quotas), generation(&core), control(&core) {
    core.state.SetListener([this](bool serving) { health.SetServing(serving); });
  }

  ListenAddress address;
  std::string target;
  ServiceCore core;
  HealthService health;
  GenerationService generation;
  ControlService control;
  std::mutex shutdown_mutex;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<Listener> listener;    // gives connections to the acceptor
  std::unique_ptr<grpc::Server> server;  // null after Shutdown
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Options& options) {
  PrepareLibrary();
  auto parts = std::make_unique<Parts>(options.quotas);
  BH_ASSIGN_OR_RETURN(parts->address, ResolveListenAddress(options.host, options.port));
  BH_ASSIGN_OR_RETURN(parts->listener, Listener::Bind(parts->address));
  parts->address.port = parts->listener->port();
  parts->target = parts->address.Text();
  grpc::ServerBuilder builder;
  SetLimits(builder, options.quotas);
  // TLS is not built yet; who may bind to other than loopback is decided by the command line.
  parts->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  builder.RegisterService(&parts->health);
  builder.RegisterService(&parts->generation);
  builder.RegisterService(&parts->control);
  builder.experimental().SetInterceptorCreators(ExplainMalformedRequests());
  parts->server = builder.BuildAndStart();
  BH_CHECK(parts->server != nullptr);
  parts->listener->Start([acceptor = parts->acceptor.get()](int listener_fd, int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener_fd;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(parts)));
}

GrpcServer::GrpcServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

GrpcServer::~GrpcServer() { Shutdown(absl::ZeroDuration()); }

const std::string& GrpcServer::target() const { return parts_->target; }

int GrpcServer::port() const { return parts_->address.port; }

const std::string& GrpcServer::epoch() const { return parts_->core.state.epoch(); }

void GrpcServer::SetReady(ServingParts parts) { parts_->core.state.SetReady(std::move(parts)); }

void GrpcServer::SetDraining() { parts_->core.state.SetDraining(); }

void GrpcServer::SetLost(const absl::Status& why, LostRank lost) {
  parts_->core.state.SetLost(why, std::move(lost));
  // Explained by the state, which is lost now: the first cause, with its rank.
  parts_->core.calls.EndAll(absl::UnavailableError(why.message()));
}

bool GrpcServer::FlushAndWait(absl::Duration timeout) {
  return parts_->core.calls.WaitUntilClosed(timeout);
}

void GrpcServer::Shutdown(absl::Duration grace) {
  const std::lock_guard<std::mutex> lock(parts_->shutdown_mutex);
  if (parts_->server == nullptr) return;
  parts_->core.state.SetDraining();
  parts_->health.EndWatches();
  parts_->core.calls.WaitUntilClosed(grace);
  parts_->core.calls.EndAll(
      WithReason(absl::UnavailableError("the server is stopping"), reason::kStopping));
  parts_->listener->Stop();
  // What a client does not read is cut now: nothing may wait for it.
  parts_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  parts_->server->Wait();
  parts_->server.reset();
}

}  // namespace bulkhead
