#include "launcher/clients/client_channel.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "google/rpc/error_details.pb.h"
#include "launcher/clients/client_credentials.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {
namespace {

// More than our server ever sends: config.json is limited to 16 MiB.
constexpr int kMaxMessageBytes = 32 << 20;
constexpr absl::Duration kPlainConnectLimit = absl::Seconds(1);

// Whether a TCP connection to "HOST:PORT" can be made. False for any other kind of target.
// `unresolved`: why the host has no address.
bool AcceptsTcpConnection(const std::string& target, std::string* unresolved) {
  const size_t colon = target.rfind(':');
  if (colon == std::string::npos) return false;
  std::string host = target.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), target.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) {
    *unresolved = gai_strerror(error);
    return false;
  }
  bool answers = false;
  for (const addrinfo* one = found; one != nullptr && !answers; one = one->ai_next) {
    const int fd = socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    answers = connect(fd, one->ai_addr, one->ai_addrlen) == 0;
    pollfd waited = {fd, POLLOUT, 0};
    int refusal = 0;
    socklen_t size = sizeof(refusal);
    if (!answers && errno == EINPROGRESS &&
        poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(kPlainConnectLimit))) == 1) {
      answers = getsockopt(fd, SOL_SOCKET, SO_ERROR, &refusal, &size) == 0 && refusal == 0;
    }
    close(fd);
  }
  freeaddrinfo(found);
  return answers;
}

absl::Status NoServer(const std::string& target, bool is_tls) {
  std::string unresolved;
  return WithExitCode(
      absl::UnavailableError(
          AcceptsTcpConnection(target, &unresolved)
              ? absl::StrCat("the program at ", target,
                             is_tls
                                 ? " made no TLS connection with these certificates: it does not "
                                   "use TLS, hangs or is stopped, its certificate is from "
                                   "another authority or for another host, or it requires a "
                                   "client certificate (--ssl-certfile, --ssl-keyfile)"
                                 : " does not speak gRPC (over plain HTTP/2): it is not a "
                                   "Bulkhead server, it is still starting, hangs or is stopped, "
                                   "or has TLS, which needs --ssl-ca-certs; give the address "
                                   "after grpc= in the server's line READY "
                                   "with --target (http= is for 'bulkhead chat')")
          : !unresolved.empty()
              ? absl::StrCat("the host of ", target, " is not known (", unresolved,
                             "); give the server's with --target")
              : absl::StrCat("no server answers at ", target,
                             "; start one with 'bulkhead serve', or give another with --target")),
      ExitCode::kClientError);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& target,
                                                       const ClientCredentials& credentials,
                                                       absl::Duration limit, int connection) {
  BH_ASSIGN_OR_RETURN(ChannelSecurity security, ReadCredentials(credentials));
  google::protobuf::SetLogHandler(nullptr);  // our own last line names the cause
  grpc_init();  // never shut down: gRPC's last shutdown may wait 10 s for a polling thread
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt("bulkhead.connection", connection);  // or equal channels share a connection
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // Detects a server machine that vanished, even while waiting in its queue.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  const bool is_tls = credentials.ssl_ca_certs.has_value();
  auto channel = CreateChannel(target, arguments, std::move(security));
  const auto deadline = absl::ToChronoTime(absl::Now() + limit);
  while (true) {
    const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return channel;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || !channel->WaitForStateChange(state, deadline)) {
      return NoServer(target, is_tls);
    }
  }
}

absl::Status StatusOf(const grpc::Status& status, const std::string& target) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  std::string message = status.error_message();
  const std::string of_grpc = absl::StrCat(" (", message, ")");
  if (code == absl::StatusCode::kUnauthenticated) {
    absl::StrAppend(&message, "; give the key with --api-key-file FILE or BULKHEAD_API_KEY");
  }
  if (!status.error_details().empty()) {
    absl::Status refusal(code, message);
    google::rpc::Status details;
    if (!details.ParseFromString(status.error_details())) return refusal;
    for (const auto& one : details.details()) {
      refusal.SetPayload(one.type_url(), absl::Cord(one.value()));
    }
    return refusal;
  }
  if (code == absl::StatusCode::kUnavailable) {
    message = absl::StrCat("the server at ", target, " can no longer be reached", of_grpc,
                           "; its last line says why it ended");
  } else if (code == absl::StatusCode::kDeadlineExceeded) {
    message = absl::StrCat("the server at ", target, " did not answer in time", of_grpc,
                           "; 'bulkhead doctor' shows what it is busy with");
  } else if (code == absl::StatusCode::kCancelled) {
    message = absl::StrCat("the call to the server at ", target, " was cancelled");
  }
  return absl::Status(code, message);
}

std::optional<absl::Duration> RetryDelayOf(const absl::Status& status) {
  const bool is_bound =
      absl::IsResourceExhausted(status) || ReasonOf(status) == reason::kTooManyCalls;
  return is_bound ? RetryAfter(status) : std::nullopt;
}

void CallsInFlight::Add(grpc::ClientContext* context) {
  const absl::MutexLock lock(&mutex_);
  contexts_.insert(context);
  if (cancelled_) context->TryCancel();
}

void CallsInFlight::Remove(grpc::ClientContext* context) {
  const absl::MutexLock lock(&mutex_);
  contexts_.erase(context);
}

void CallsInFlight::CancelAll() {
  const absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
}

bool CallsInFlight::cancelled() const {
  const absl::MutexLock lock(&mutex_);
  return cancelled_;
}

bool CallsInFlight::SleepUnlessCancelled(absl::Duration duration) {
  const absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&cancelled_), duration);
}

}  // namespace bulkhead
