// A client command's connection to a server.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace bulkhead {

// A connected channel. UNAVAILABLE naming `target`, with exit code 1, as soon as nobody answers
// there or after `limit`. Proxies of the environment are not used: a server is reached directly or
// not at all. Channels of one `connection` number share a TCP connection.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& target,
                                                       absl::Duration limit, int connection = 0);

// What a call to `target` came to. What gRPC itself said ("Socket closed") is told with the target
// and what to do; a server's own refusal, which carries details, as it is.
absl::Status StatusOf(const grpc::Status& status, const std::string& target);

// What the server's google.rpc.RetryInfo says; absent when it gave none.
std::optional<absl::Duration> RetryDelayOf(const grpc::Status& status);

// The calls in flight, so that a signal can cancel all of them. Thread-safe.
class CallsInFlight {
 public:
  // From now on `context` is cancelled with the others, at once when they already were.
  void Add(grpc::ClientContext* context);
  void Remove(grpc::ClientContext* context);
  void CancelAll();
  bool cancelled() const;
  // Sleeps for `duration`, or until CancelAll; whether that was called.
  bool SleepUnlessCancelled(absl::Duration duration);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
  std::set<grpc::ClientContext*> contexts_;
};

}  // namespace bulkhead
