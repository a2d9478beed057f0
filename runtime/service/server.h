// GrpcServer: the listener and its services. It binds before the weights load and answers
// UNAVAILABLE (STARTING) until SetReady. Every method is thread-safe; the watchdog may call SetLost
// and FlushAndWait while other threads wait in a collective for ever.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/service/host_quotas.h"
#include "runtime/service/serving_state.h"

namespace bulkhead {

class GrpcServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // a name is bound to one of its addresses, IPv4 first
    int port = 50051;                // 0: any free one
    int control_port = 0;            // of the control port, on 127.0.0.1; 0: any free one
    HostQuotas quotas;
  };

  // Binds and answers. UNAVAILABLE with exit code 7, naming host, port and cause, when it cannot.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const Options& options);
  ~GrpcServer();  // Shutdown(0) if need be

  // "HOST:PORT" to connect to, with the port that was bound.
  const std::string& target() const;
  int port() const;
  // "127.0.0.1:PORT" of the port that health, drain and Control have for themselves.
  const std::string& control_target() const;
  // Names this life of the group; stands in every event.
  const std::string& epoch() const;

  // Health SERVING, requests go to parts.inbox. Ignored when draining or lost already.
  void SetReady(ServingParts parts);
  // Health NOT_SERVING, new requests are refused (DRAINING); what runs goes on.
  void SetDraining();
  // Health NOT_SERVING; every open generation ends with UNAVAILABLE (RANK_LOST) and `why`'s
  // message, here and now. What the engine still reports about them is ignored.
  void SetLost(const absl::Status& why, LostRank lost = {});

  // Waits until the ends of all generations have been written to their clients; false when
  // `timeout` was not enough (a client that does not read).
  bool FlushAndWait(absl::Duration timeout);

  // Stops listening, gives open calls `grace` to end, ends the rest with UNAVAILABLE (STOPPING).
  // Afterwards nothing of ServingParts is used any more.
  void Shutdown(absl::Duration grace);

 private:
  struct Parts;
  explicit GrpcServer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace bulkhead
