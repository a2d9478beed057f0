// GrpcServer: the gRPC front end, its ports and services. Binds before the weights load; until the
// core is ready it answers UNAVAILABLE (STARTING). Every method is thread-safe; the watchdog may
// call FlushAndWait while other threads hang in a collective.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/service/service_core.h"
#include "runtime/service/tls/tls_context.h"

namespace bulkhead {

class GrpcServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // a name is bound to one of its addresses, IPv4 first
    int port = 50051;                // 0: any free port
    int control_port = 0;            // of the control port (control_port.h); 0: any free port
    std::shared_ptr<const TlsContext> tls = nullptr;  // for `port`; null: plain
  };

  // Binds and starts answering. UNAVAILABLE with exit code 7, host, port and cause if it cannot.
  // `core` outlives the server, and does not change its phase after that.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const Options& options,
                                                           ServiceCore* core);
  ~GrpcServer();  // calls Shutdown(0) if necessary

  // "HOST:PORT" to connect to, with the bound port.
  const std::string& target() const;
  int port() const;
  // "127.0.0.1:PORT", or "[::1]:PORT", of the separate port for Health and Control.
  const std::string& control_target() const;
  // Waits until the ends of all generations are written to their clients; false on `timeout` (a
  // client that does not read).
  bool FlushAndWait(absl::Duration timeout);

  // ServiceCore::Stop(grace), then ends everything.
  void Shutdown(absl::Duration grace);

 private:
  struct Parts;
  explicit GrpcServer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace bulkhead
