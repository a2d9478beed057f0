// TlsTerminator: does the TLS handshakes of a listener's clients, then moves their bytes, on one
// thread of its own. Every buffer is bounded: a peer that does not read is not read from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/service/access/access_control.h"
#include "runtime/service/error_counts.h"
#include "runtime/service/listener.h"
#include "runtime/service/tls/tls_connection.h"

namespace bulkhead {

// Maximum TLS connections of a listener for `max_clients`, including those in the handshake and
// those with last bytes to send. Further ones are closed at once.
inline constexpr int MaxTlsConnections(int max_clients) { return max_clients + max_clients / 2; }
// Maximum of these in the handshake; a new one replaces the oldest.
inline constexpr int MaxTlsHandshakes(int max_clients) { return max_clients / 4; }

class TlsTerminator {
 public:
  // Takes the front end's end of a connection, as it takes a client's.
  using GiveToFrontEnd = std::function<bool(const AcceptedClient& client)>;
  // `access` gives the roles of certificates; `closed` counts connections whose handshake failed or
  // that found no room, by reason. All outlive the terminator.
  TlsTerminator(std::shared_ptr<const TlsContext> context, int max_clients,
                const AccessControl* access, ErrorCounts* closed, GiveToFrontEnd give);
  ~TlsTerminator();  // calls Stop(0) if necessary
  TlsTerminator(const TlsTerminator&) = delete;
  TlsTerminator& operator=(const TlsTerminator&) = delete;

  // Takes and owns a client's connection. Any thread.
  void Take(int client_fd);
  // Waits until what front ends have sent has reached all clients that read; false after `timeout`.
  bool Flush(absl::Duration timeout);
  // Once the front end has closed its connections: sends what is left within `grace`, then ends.
  // Once.
  void Stop(absl::Duration grace);

 private:
  struct Entry {
    std::unique_ptr<TlsConnection> connection;
    uint32_t client_events = 0;  // what epoll waits for; 0: epoll does not know it
    uint32_t inner_events = 0;
  };
  using Connections = absl::flat_hash_map<uint64_t, Entry>;

  void Loop();
  void TakeArrivals(absl::Time now);
  void Serve(uint64_t tag, uint32_t events, absl::Time now);
  // After every change: gives a connection that is ready to the front end, forgets one that is
  // closed.
  void Settle(Connections::iterator entry, absl::Time now);
  void Give(uint64_t id, TlsConnection& connection);
  void Watch(uint64_t tag, int fd, uint32_t events, uint32_t* known);
  void Tick(absl::Time now);
  // Wakes the callers of Flush; true when the thread is to end.
  bool AnswerCallers(absl::Time now);
  void Wake();

  const std::shared_ptr<const TlsContext> context_;
  const int max_clients_;
  const AccessControl* const access_;
  ErrorCounts* const closed_;
  const GiveToFrontEnd give_;
  const int epoll_fd_;
  const int wake_fd_;
  Connections connections_;
  std::set<uint64_t> handshakes_;  // ids, the oldest first
  uint64_t next_id_ = 1;
  absl::Mutex mutex_;
  std::vector<int> arrivals_ ABSL_GUARDED_BY(mutex_);
  int open_ ABSL_GUARDED_BY(mutex_) = 0;  // arrivals and connections
  bool flush_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_flushed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time stop_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::thread thread_;
};

}  // namespace bulkhead
