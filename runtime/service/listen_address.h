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
  std::string flag = "--port";  // that named the port, for what failures say

  std::string Text() const;  // "127.0.0.1:50051", "[::1]:50051"
};

// IPv4 before IPv6. Failures carry exit code 7 and name host, port and cause.
absl::StatusOr<ListenAddress> ResolveListenAddress(const std::string& host, int port);

// A socket that listens there, which does not block and is the caller's to close. Failures as
// above.
absl::StatusOr<int> ListenOn(const ListenAddress& address);

}  // namespace bulkhead
