// ConnectionGuard: sits between clients' sockets and gRPC. One thread moves bytes between each
// client and the server's end of its socket pair, under ConnectionRules for each connection and the
// host's quotas for all. Every buffer is bounded: a peer that does not read is not read from.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/service/guard/guard_totals.h"
#include "runtime/service/guard/guarded_connection.h"
#include "runtime/service/host_pressure.h"
#include "runtime/service/listener.h"

namespace bulkhead {

class ConnectionGuard {
 public:
  // Takes the server's end of a connection, which does not block, and owns it.
  using GiveToServer = std::function<void(int fd)>;
  // `pressure` and `access` may be null. All outlive the guard.
  ConnectionGuard(const HostQuotas& quotas, HostCounters* counters, ErrorCounts* errors,
                  const HostPressure* pressure, const AccessControl* access, GiveToServer give);
  ~ConnectionGuard();  // calls Stop(0) if necessary
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

  // Takes and owns a client's connection. Closes it, and returns false for
  // want of descriptors, when there is no room. Any thread.
  bool Take(const AcceptedClient& client);
  // Waits until the server's output has reached all clients that read; false after `timeout`.
  bool Flush(absl::Duration timeout);
  // The server gets no more calls: new ones are refused (STOPPING), and so are those that it does
  // not have yet. Waits until those that it has are over; false after `timeout`.
  bool EndCalls(absl::Duration timeout);
  // Lets the server end its connections within `grace`, then ends what is left. Once.
  void Stop(absl::Duration grace);

 private:
  struct Guarded {
    std::unique_ptr<GuardedConnection> connection;
    uint32_t client_events = 0;  // what epoll waits for; 0: epoll does not know it
    uint32_t server_events = 0;
  };
  using Connections = absl::flat_hash_map<uint64_t, Guarded>;

  void Loop();
  void TakeArrivals(absl::Time now);
  void Serve(uint64_t id, bool from_client, uint32_t events, absl::Time now);
  // After every change: what epoll waits for. Forgets a connection that has ended.
  void Settle(Connections::iterator guarded, absl::Time now);
  void Watch(uint64_t tag, int fd, uint32_t events, uint32_t* known);
  void Tick(absl::Time now);
  void CloseIdle(absl::Time now);
  void CloseLargest(absl::Time now);
  void LogClosed(absl::Time now);
  // Wakes the callers of Flush and EndCalls; true when the guard is to end.
  bool AnswerCallers(absl::Time now);
  void Wake();

  GuardTotals totals_;
  const HostPressure* const pressure_;
  const GiveToServer give_;
  const int epoll_fd_;
  const int wake_fd_;
  Connections connections_;
  absl::flat_hash_set<uint64_t> waiting_;
  uint64_t next_id_ = 1;
  std::map<std::string, uint64_t> logged_closed_;
  absl::Time next_log_ = absl::InfinitePast();
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<GuardedConnection>> arrivals_ ABSL_GUARDED_BY(mutex_);
  int flushes_wanted_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_flushed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ends_calls_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_no_calls_ ABSL_GUARDED_BY(mutex_) = false;  // since ends_calls_
  absl::Time stop_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::atomic<uint64_t> last_name_{0};
  std::thread thread_;
};

// The client's address, from gRPC's peer name of a guarded connection ("unix-abstract:..."):
// "HOST:PORT"; any other name unchanged.
std::string ClientAddress(const std::string& grpc_peer);

}  // namespace bulkhead
