#include "runtime/service/grpc/health_service.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/grpc/raw_message.h"
#include "runtime/service/grpc/status_conversion.h"
#include "runtime/service/local_call.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr char kStopping[] = "the server is shutting down";

bool IsKnown(const std::string& service) {
  return service.empty() || service == "bulkhead.v1.Generation" ||
         service == "bulkhead.v1.Control" || service == "vllm.grpc.engine.VllmEngine";
}

absl::StatusOr<std::string> ServiceNamedIn(const grpc::ByteBuffer* request) {
  grpc::ByteBuffer taken = TakeRequest(request);
  BH_RETURN_IF_ERROR(WhyTooLarge(taken.Length(), LocalCall::kMaxControlBytes));
  HealthCheckRequest message;
  BH_RETURN_IF_ERROR(ParseRequest(taken, message));
  return std::move(*message.mutable_service());
}

}  // namespace

// One Watch call. Writes the current status whenever it differs from the last one written.
class HealthService::Watcher final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                                     public std::enable_shared_from_this<Watcher> {
 public:
  Watcher(HealthService* service, bool known) : service_(service), known_(known) {}

  void End(grpc::Status status) {
    {
      const absl::MutexLock lock(&mutex_);
      if (!end_.has_value()) end_ = std::move(status);
    }
    Proceed();
  }

  void OnWriteDone(bool ok) override {
    {
      const absl::MutexLock lock(&mutex_);
      write_in_flight_ = false;
      if (!ok && !end_.has_value()) end_ = grpc::Status::CANCELLED;
    }
    Proceed();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override { service_->Forget(shared_from_this()); }

  // Call after every change: if the status changes while it is read here, the next call sends it.
  void Proceed() {
    std::optional<grpc::Status> end;
    {
      const absl::MutexLock lock(&mutex_);
      if (write_in_flight_ || finishing_) return;
      // The protocol allows unknown services to appear later; here they never do.
      const auto status = known_ ? service_->Status() : HealthCheckResponse::SERVICE_UNKNOWN;
      end = end_;
      if (!end.has_value() && written_ == status) return;
      finishing_ = end.has_value();
      write_in_flight_ = !finishing_;
      if (write_in_flight_) {
        written_ = status;
        HealthCheckResponse response;
        response.set_status(status);
        response_ = BufferOf(response.SerializeAsString());
      }
    }
    if (end.has_value()) return Finish(*end);
    StartWrite(&response_);
  }

 private:
  HealthService* const service_;
  const bool known_;
  absl::Mutex mutex_;
  std::optional<HealthCheckResponse::ServingStatus> written_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool write_in_flight_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer response_;  // used by the write in flight
};

std::set<std::shared_ptr<HealthService::Watcher>> HealthService::Watchers() {
  const absl::MutexLock lock(&mutex_);
  return watchers_;
}

void HealthService::Forget(const std::shared_ptr<Watcher>& watcher) {
  const absl::MutexLock lock(&mutex_);
  watchers_.erase(watcher);
}

void HealthService::SetPhase(ServingPhase phase) {
  phase_ = phase;
  for (const std::shared_ptr<Watcher>& watcher : Watchers()) {
    if (phase == ServingPhase::kStopping) {
      watcher->End({grpc::StatusCode::UNAVAILABLE, kStopping});
    } else {
      watcher->Proceed();
    }
  }
}

absl::Status HealthService::Check(const std::string& service, HealthCheckResponse* response) const {
  if (!IsKnown(service)) {
    return absl::NotFoundError(absl::StrCat("service ", Quoted(service), " is not known here"));
  }
  response->set_status(Status());
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  const absl::StatusOr<std::string> service = ServiceNamedIn(request);
  if (!service.ok()) return Answer(*context, service.status());
  HealthCheckResponse message;
  const absl::Status status = Check(*service, &message);
  *response = BufferOf(message.SerializeAsString());
  return Answer(*context, status);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* HealthService::Watch(
    grpc::CallbackServerContext* /*context*/, const grpc::ByteBuffer* request) {
  const absl::StatusOr<std::string> service = ServiceNamedIn(request);
  auto watcher = std::make_shared<Watcher>(this, service.ok() && IsKnown(*service));
  bool too_many = false;
  {
    const absl::MutexLock lock(&mutex_);
    too_many = watchers_.size() >= kMaxWatches;
    watchers_.insert(watcher);
  }
  if (!service.ok()) {
    watcher->End(ToGrpcStatus(service.status()));
  } else if (too_many) {
    watcher->End({grpc::StatusCode::RESOURCE_EXHAUSTED,
                  absl::StrCat(kMaxWatches, " watches are open, the limit; use Check")});
  } else if (is_stopping()) {
    watcher->End({grpc::StatusCode::UNAVAILABLE, kStopping});
  } else {
    watcher->Proceed();
  }
  return watcher.get();
}

}  // namespace bulkhead
