// grpc.health.v1.Health: "" and the names of our services, which all have the same status.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace bulkhead {

using RawHealth = grpc::health::v1::Health::WithRawCallbackMethod_Check<
    grpc::health::v1::Health::WithRawCallbackMethod_Watch<grpc::health::v1::Health::Service>>;

// Raw, as Generation is: a request that is too long is not parsed.
class HealthService final : public RawHealth {
 public:
  // A Watch stays open as long as its client likes; more are refused with RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxWatches = 256;

  // Initially NOT_SERVING. Every Watch is notified of a change; changes during a notification are
  // merged.
  void SetServing(bool serving);
  // Ends every Watch, so that the server can shut down; later ones end at once.
  void EndWatches();

  // NOT_FOUND for an unknown service.
  absl::Status Check(const std::string& service,
                     grpc::health::v1::HealthCheckResponse* response) const;

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request) override;

 private:
  class Watcher;
  // The current watchers, to be notified without the lock.
  std::set<std::shared_ptr<Watcher>> Watchers();
  void Forget(const std::shared_ptr<Watcher>& watcher);

  std::atomic<bool> serving_{false};
  std::mutex mutex_;
  bool ended_ = false;
  std::set<std::shared_ptr<Watcher>> watchers_;
};

}  // namespace bulkhead
