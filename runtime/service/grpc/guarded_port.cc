#include "runtime/service/grpc/guarded_port.h"

#include <grpcpp/resource_quota.h>

#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace bulkhead {
namespace {

// A connection without a call: its client connects again when it has one.
constexpr int kMaxIdleMs = 5 * 60'000;
constexpr int kMinRecvPingIntervalMs = 10'000;
constexpr int kKeepaliveTimeMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;

}  // namespace

absl::StatusOr<std::unique_ptr<GuardedPort>> GuardedPort::Bind(
    const std::string& host, int port, const std::string& flag,
    std::shared_ptr<const TlsContext> tls) {
  BH_ASSIGN_OR_RETURN(std::unique_ptr<ClientListener> listener,
                      ClientListener::Bind(host, port, flag, std::move(tls)));
  return std::unique_ptr<GuardedPort>(new GuardedPort(std::move(listener)));
}

void GuardedPort::AddTo(grpc::ServerBuilder& builder, const HostQuotas& quotas, int max_threads) {
  grpc::ResourceQuota quota("bulkhead");
  quota.Resize(static_cast<size_t>(quotas.grpc_bytes));
  quota.SetMaxThreads(max_threads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  // TLS, if any, is terminated before the guard.
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(
      static_cast<int>(quotas.message_bytes + quotas.refused_message_bytes));
  // gRPC unpacks all of a message before it looks at its size: a few megabytes would become
  // gigabytes.
  for (const grpc_compression_algorithm packed : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(packed, false);
  }
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, quotas.max_open_calls);
  // Without a table the decoder holds no state: the guard may hold a header block back.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_HPACK_TABLE_SIZE_DECODER, 0);
  // Nor does the encoder hold state: the guard may withhold a block from the client.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_HPACK_TABLE_SIZE_ENCODER, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(kMaxMetadataBytes));
  // Windows and frames of constant size, and no ping sent for each that arrives.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
  // A generation is silent for as long as a step takes: clients may ping to see that we live.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinRecvPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // A client that vanished silently is detected, and its blocks are freed.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
}

void GuardedPort::Start(const HostQuotas& quotas, HostCounters* counters, ErrorCounts* errors,
                        const HostPressure* pressure, const AccessControl* access) {
  guard_ = std::make_unique<ConnectionGuard>(
      quotas, counters, errors, pressure, access, [acceptor = acceptor_.get()](int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.fd = fd;
        acceptor->HandleNewConnection(&connection);
      });
  listener_->Start(
      quotas.max_connections, access, &counters->closed,
      [guard = guard_.get()](const AcceptedClient& client) { return guard->Take(client); });
}

bool GuardedPort::Flush(absl::Duration timeout) {
  const absl::Time deadline = MonotonicNow() + timeout;
  return guard_->Flush(timeout) && listener_->Flush(deadline - MonotonicNow());
}

void GuardedPort::Stop(absl::Duration grace) {
  const absl::Time deadline = MonotonicNow() + grace;
  guard_->Stop(grace);
  listener_->Stop(deadline - MonotonicNow());
}

}  // namespace bulkhead
