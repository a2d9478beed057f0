// GrpcServer: the listener and its services. Binds before the weights load and answers UNAVAILABLE
// (STARTING) until SetReady. Every method is thread-safe; the watchdog may call SetLost and
// FlushAndWait while other threads hang in a collective.
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
    int port = 50051;                // 0: any free port
    int control_port = 0;            // of the control port, on 127.0.0.1; 0: any free port
    HostQuotas quotas;
  };

  // Binds and starts answering. UNAVAILABLE with exit code 7, host, port and cause if it cannot.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const Options& options);
  ~GrpcServer();  // calls Shutdown(0) if necessary

  // "HOST:PORT" to connect to, with the bound port.
  const std::string& target() const;
  int port() const;
  // "127.0.0.1:PORT" of the separate port for Health and Control.
  const std::string& control_target() const;
  // Identifies this run of the group; included in every event.
  const std::string& epoch() const;

  // Health SERVING, requests go to parts.inbox. Ignored if draining or lost.
  void SetReady(ServingParts parts);
  // Health NOT_SERVING, new requests are refused (DRAINING); running ones continue.
  void SetDraining();
  // Health NOT_SERVING; every open generation ends at once with UNAVAILABLE (RANK_LOST) and `why`'s
  // message. Later output of the engine for them is ignored.
  void SetLost(const absl::Status& why, LostRank lost = {});

  // Waits until the ends of all generations are written to their clients; false on `timeout` (a
  // client that does not read).
  bool FlushAndWait(absl::Duration timeout);

  // Stops listening, gives open calls `grace` to end, ends the rest with UNAVAILABLE (STOPPING).
  // Afterwards ServingParts is no longer used.
  void Shutdown(absl::Duration grace);

 private:
  struct Parts;
  explicit GrpcServer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace bulkhead
