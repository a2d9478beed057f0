#include "runtime/service/health_service.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/raw_message.h"
#include "runtime/service/refusal.h"
#include "runtime/service/unary_call.h"

namespace bulkhead {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

bool IsKnown(const std::string& service) {
  return service.empty() || service == "bulkhead.v1.Generation" || service == "bulkhead.v1.Control";
}

HealthCheckResponse::ServingStatus StatusOf(bool serving) {
  return serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

absl::StatusOr<std::string> ServiceNamedIn(const grpc::ByteBuffer* request) {
  grpc::ByteBuffer taken = TakeRequest(request);
  BH_RETURN_IF_ERROR(WhyTooLarge(taken.Length(), UnaryCall::kMaxControlBytes));
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
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!end_.has_value()) end_ = std::move(status);
    }
    Proceed();
  }

  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      write_in_flight_ = false;
      if (!ok && !end_.has_value()) end_ = grpc::Status::CANCELLED;
    }
    Proceed();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override { service_->Forget(shared_from_this()); }

  // Call after every change: if the status changes while it is read here, the next call sends it.
  void Proceed() {
    bool finish = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (write_in_flight_ || finishing_) return;
      // The protocol allows unknown services to appear later; here they never do.
      const auto status =
          known_ ? StatusOf(service_->serving_) : HealthCheckResponse::SERVICE_UNKNOWN;
      finish = end_.has_value();
      if (!finish && written_ == status) return;
      finishing_ = finish;
      write_in_flight_ = !finish;
      if (!finish) {
        written_ = status;
        HealthCheckResponse response;
        response.set_status(status);
        response_ = BufferOf(response.SerializeAsString());
      }
    }
    if (finish) return Finish(*end_);
    StartWrite(&response_);
  }

 private:
  HealthService* const service_;
  const bool known_;
  std::mutex mutex_;
  std::optional<HealthCheckResponse::ServingStatus> written_;
  std::optional<grpc::Status> end_;
  bool write_in_flight_ = false;
  bool finishing_ = false;
  grpc::ByteBuffer response_;  // used by the write in flight
};

std::set<std::shared_ptr<HealthService::Watcher>> HealthService::Watchers() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watchers_;
}

void HealthService::Forget(const std::shared_ptr<Watcher>& watcher) {
  const std::lock_guard<std::mutex> lock(mutex_);
  watchers_.erase(watcher);
}

void HealthService::SetServing(bool serving) {
  serving_ = serving;
  for (const std::shared_ptr<Watcher>& watcher : Watchers()) watcher->Proceed();
}

void HealthService::EndWatches() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  for (const std::shared_ptr<Watcher>& watcher : Watchers()) {
    watcher->End({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
  }
}

absl::Status HealthService::Check(const std::string& service, HealthCheckResponse* response) const {
  if (!IsKnown(service)) {
    return absl::NotFoundError(absl::StrCat("service ", Quoted(service), " is not known here"));
  }
  response->set_status(StatusOf(serving_));
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
  bool ended = false, too_many = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    too_many = watchers_.size() >= kMaxWatches;
    watchers_.insert(watcher);
    ended = ended_;
  }
  if (!service.ok()) {
    watcher->End(ToGrpcStatus(service.status()));
  } else if (too_many) {
    watcher->End({grpc::StatusCode::RESOURCE_EXHAUSTED,
                  absl::StrCat(kMaxWatches, " watches are open, the limit; use Check")});
  } else if (ended) {
    watcher->End({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
  } else {
    watcher->Proceed();
  }
  return watcher.get();
}

}  // namespace bulkhead
