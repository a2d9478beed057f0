// A client command's connection to a server.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/exit_code.h"
#include "grpcpp/grpcpp.h"
#include "launcher/flags/security_options.h"

namespace bulkhead {

inline constexpr absl::Duration kConnectLimit = absl::Seconds(5);
inline constexpr absl::Duration kCallLimit = absl::Seconds(10);

// A connected channel. UNAVAILABLE naming `target`, with exit code 1, when connecting fails or
// after `limit`; INVALID_ARGUMENT with exit code 2 for a file that cannot be used. Every call
// carries the API key, if there is one. Proxy settings in the environment are ignored. Channels
// with the same `connection` number share a TCP connection.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& target,
                                                       const ClientCredentials& credentials,
                                                       absl::Duration limit, int connection = 0);

// The status of a call to `target`. gRPC's own errors ("Socket closed") are extended by the target
// and what to do; a server's refusal, which has details, is passed on with them as payloads
// (runtime/engine/refusal.h).
absl::Status StatusOf(const grpc::Status& status, const std::string& target);

// A call with one answer, within kCallLimit. Errors are StatusOf's, with exit code 1.
template <typename Stub, typename Request, typename Response>
absl::Status Ask(const std::string& target, Stub* stub,
                 grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                 const Request& request, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallLimit));
  return WithExitCode(StatusOf((stub->*method)(&context, request, response), target),
                      ExitCode::kClientError);
}

// Delay before a refused call may be sent to the same server again, if a limit of the server was
// reached. A server that starts, drains or is lost also sends a delay, but is not waited for.
std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

// The calls in flight, so that a signal can cancel all of them. Thread-safe.
class CallsInFlight {
 public:
  // `context` is cancelled with the others, at once if that has already happened.
  void Add(grpc::ClientContext* context);
  void Remove(grpc::ClientContext* context);
  void CancelAll();
  bool cancelled() const;
  // Sleeps for `duration`, or until CancelAll; returns whether that was called.
  bool SleepUnlessCancelled(absl::Duration duration);

 private:
  mutable absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead
