// Where to listen: one numeric address, so that a name with several addresses cannot end up bound
// to only some of them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bulkhead {

struct ListenAddress {
  std::string ip;  // "127.0.0.1", "::1"
  int port = 0;    // 0: any free one
  bool is_loopback = false;

  std::string Text() const;  // "127.0.0.1:50051", "[::1]:50051"
};

// IPv4 before IPv6. Failures carry exit code 7 and name host, port and cause.
absl::StatusOr<ListenAddress> ResolveListenAddress(const std::string& host, int port);

// Ok when nobody else holds the address now and it is ours to bind. UNAVAILABLE naming it and the
// cause.
absl::Status CheckCanBind(const ListenAddress& address);

}  // namespace bulkhead
