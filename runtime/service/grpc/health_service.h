// grpc.health.v1.Health: "" and the names of our services, which all have the same status.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "runtime/service/serving_state.h"

namespace bulkhead {

using RawHealth = grpc::health::v1::Health::WithRawCallbackMethod_Check<
    grpc::health::v1::Health::WithRawCallbackMethod_Watch<grpc::health::v1::Health::Service>>;

// Raw methods, like Generation: a request that is too long is not parsed.
class HealthService final : public RawHealth {
 public:
  // A Watch stays open as long as its client likes; more are refused with RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxWatches = 256;

  // Initially NOT_SERVING. Every Watch is notified of a change; changes during a notification are
  // merged. kStopping ends every Watch, so that the server can shut down; later ones end at once.
  void SetPhase(ServingPhase phase);
  bool is_stopping() const { return phase_ == ServingPhase::kStopping; }

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
  grpc::health::v1::HealthCheckResponse::ServingStatus Status() const {
    return phase_ == ServingPhase::kServing ? grpc::health::v1::HealthCheckResponse::SERVING
                                            : grpc::health::v1::HealthCheckResponse::NOT_SERVING;
  }
  // The current watchers, to be notified without the lock.
  std::set<std::shared_ptr<Watcher>> Watchers();
  void Forget(const std::shared_ptr<Watcher>& watcher);

  std::atomic<ServingPhase> phase_{ServingPhase::kStarting};
  absl::Mutex mutex_;
  std::set<std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead
