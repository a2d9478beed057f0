// HttpServer: the HTTP front end, with OpenAI's API: its port, thread and connections. Binds before
// the weights load; until the core is ready it answers 503 (STARTING). One thread reads, writes and
// turns messages into JSON; it never waits for the engine, and long bodies and texts go to the text
// worker.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/service/http/chat_parts.h"
#include "runtime/service/service_core.h"
#include "runtime/service/tls/tls_context.h"

namespace bulkhead {

class HttpServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // a name is bound to one of its addresses, IPv4 first
    std::vector<std::string> allowed_origins = {};  // as AllowedOrigins; not with metrics_only
    int port = 8000;                                // 0: any free port
    ChatsOr chats = NoChats("the model has no chat template");
    // --metrics-port: only /metrics, with its own connections (kMetricsConnections).
    bool metrics_only = false;
    std::shared_ptr<const TlsContext> tls = nullptr;  // null: plain
  };

  // Binds and starts answering. UNAVAILABLE with exit code 7, host, port and cause if it cannot.
  // `core` outlives the server.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Options& options,
                                                           ServiceCore* core);
  ~HttpServer();  // calls Shutdown(0) if necessary

  // "HOST:PORT" to connect to, with the bound port.
  const std::string& target() const;

  // ServiceCore::Stop(grace); refuses requests that are not whole, lets answers be made and sent
  // within `grace`, then closes every connection.
  void Shutdown(absl::Duration grace);

 private:
  struct Parts;
  explicit HttpServer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace bulkhead
