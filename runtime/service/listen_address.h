// The listen address: a single numeric address, so that a name with several addresses is never
// bound to only some of them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bulkhead {

struct ListenAddress {
  std::string ip;  // "127.0.0.1", "::1"
  int port = 0;    // 0: any free port
  bool is_loopback = false;
  std::string flag = "--port";  // the flag that set the port, for error messages

  std::string Text() const;  // "127.0.0.1:50051", "[::1]:50051"
};

// IPv4 before IPv6. Errors carry exit code 7 and name host, port and cause.
absl::StatusOr<ListenAddress> ResolveListenAddress(const std::string& host, int port);

// A non-blocking socket listening there, owned by the caller. Errors as above.
absl::StatusOr<int> ListenOn(const ListenAddress& address);

}  // namespace bulkhead
