#include "launcher/clients/client_channel.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/rpc/error_details.pb.h"
#include "memory/exit_code.h"

namespace bulkhead {

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& target,
                                                       absl::Duration limit, int connection) {
  google::protobuf::SetLogHandler(nullptr);  // our own last line names the cause
  grpc_init();  // for good: gRPC's last shutdown may wait 10 s for a thread that polls
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt("bulkhead.connection", connection);  // gRPC joins channels of equal arguments
  arguments.SetMaxReceiveMessageSize(-1);
  // A server's machine that vanished is noticed, also while its queue lets us wait.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  auto channel = grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
  const auto deadline = absl::ToChronoTime(absl::Now() + limit);
  while (true) {
    const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return channel;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || !channel->WaitForStateChange(state, deadline)) {
      return WithExitCode(absl::UnavailableError(absl::StrCat(
                              "no server answers at ", target,
                              "; start one with 'bulkhead serve', or name another with --target")),
                          ExitCode::kClientError);
    }
  }
}

absl::Status StatusOf(const grpc::Status& status, const std::string& target) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  std::string message = status.error_message();
  const std::string of_grpc = absl::StrCat(" (", message, ")");
  if (!status.error_details().empty()) return absl::Status(code, message);
  if (code == absl::StatusCode::kUnavailable) {
    message = absl::StrCat("the server at ", target, " cannot be reached any more", of_grpc,
                           "; its last line says why it ended");
  } else if (code == absl::StatusCode::kDeadlineExceeded) {
    message = absl::StrCat("the server at ", target, " did not answer in time", of_grpc,
                           "; 'bulkhead doctor' shows what it is busy with");
  } else if (code == absl::StatusCode::kCancelled) {
    message = absl::StrCat("the call to the server at ", target, " was cancelled", of_grpc);
  }
  return absl::Status(code, message);
}

std::optional<absl::Duration> RetryDelayOf(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const auto& any : details.details()) {
    google::rpc::RetryInfo info;
    if (!any.Is<google::rpc::RetryInfo>() || !any.UnpackTo(&info)) continue;
    return absl::Seconds(info.retry_delay().seconds()) +
           absl::Nanoseconds(info.retry_delay().nanos());
  }
  return std::nullopt;
}

void CallsInFlight::Add(grpc::ClientContext* context) {
  std::lock_guard<std::mutex> lock(mutex_);
  contexts_.insert(context);
  if (cancelled_) context->TryCancel();
}

void CallsInFlight::Remove(grpc::ClientContext* context) {
  std::lock_guard<std::mutex> lock(mutex_);
  contexts_.erase(context);
}

void CallsInFlight::CancelAll() {
  std::lock_guard<std::mutex> lock(mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
  changed_.notify_all();
}

bool CallsInFlight::cancelled() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return cancelled_;
}

bool CallsInFlight::SleepUnlessCancelled(absl::Duration duration) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, absl::ToChronoNanoseconds(duration),
                           [this] { return cancelled_; });
}

}  // namespace bulkhead
