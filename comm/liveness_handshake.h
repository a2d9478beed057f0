// Mutual authentication of a connection between hosts: both ends prove that they hold the group's
// key, without revealing it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/socket.h"

namespace bulkhead {

struct CallerIdentity {
  int rank = 0;             // of the caller
  std::string session_key;  // for this connection only
};

// Rank 0's side: UNAUTHENTICATED if the caller does not hold `key`.
absl::StatusOr<CallerIdentity> AuthenticateCaller(const Socket& socket, absl::string_view key,
                                                  int64_t deadline_ns);

struct Caller {
  CallerIdentity who;
  Socket socket;
};
// Rank 0's side for many callers: accepts each rank in `wanted` once, until all are connected or
// the deadline expires. Handshakes run concurrently, so a silent caller delays no other; all other
// connections are closed.
std::vector<Caller> AcceptCallers(const std::vector<ListeningSocket>& listeners,
                                  absl::string_view key, std::set<int> wanted, int64_t deadline_ns);

// The caller's side: returns the session key. UNAUTHENTICATED if the other end is not rank 0. The
// reply to a message sent by the deadline may arrive up to ten seconds later.
absl::StatusOr<std::string> AuthenticateTo(const Socket& socket, absl::string_view key, int rank,
                                           int64_t deadline_ns);

}  // namespace bulkhead
