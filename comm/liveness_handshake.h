// How the two ends of a connection between hosts prove to each other that they hold the key of
// the group, without showing it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/socket.h"

namespace bulkhead {

struct Introduction {
  int rank = 0;             // who called
  std::string session_key;  // of this connection alone
};

// Rank 0's side: UNAUTHENTICATED when the caller does not hold `key`.
absl::StatusOr<Introduction> GreetCaller(const Socket& socket, absl::string_view key,
                                         int64_t deadline_ns);

struct Caller {
  Introduction who;
  Socket socket;
};
// Rank 0's side of many: callers that prove to be one of `wanted`, each rank once, until all are
// there or the deadline has come. They are greeted side by side, so one who says nothing keeps
// nobody waiting; whoever else calls is hung up on.
std::vector<Caller> AcceptCallers(const std::vector<ListeningSocket>& listeners,
                                  absl::string_view key, std::set<int> wanted, int64_t deadline_ns);

// The caller's side: the connection's session key. UNAUTHENTICATED when it is not rank 0 that
// answers. The answer to what was sent by the deadline may come ten seconds later.
absl::StatusOr<std::string> IntroduceTo(const Socket& socket, absl::string_view key, int rank,
                                        int64_t deadline_ns);

}  // namespace bulkhead
