// GroupExchange: small host messages between all ranks while a group comes up and goes down, and
// Agree(), which ends every start-up phase. Called by the rank's main thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "comm/topology.h"

namespace bulkhead {

class GroupExchange {
 public:
  virtual ~GroupExchange() = default;
  virtual const RankTopology& topology() const = 0;
  // What every rank put in, by rank. Every rank must call it, in the same order. DEADLINE_EXCEEDED
  // naming the ranks that are missing where that can be known; UNAVAILABLE when a rank is gone.
  virtual absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                             absl::Duration timeout) = 0;
};

// Ends the start-up phase `phase`: ok when every rank is ok, else on every rank the same status, that of
// the lowest rank that failed, its exit code kept (memory/exit_code.h) and its rank and host named when
// the group has more than one.
absl::Status Agree(GroupExchange& exchange, absl::string_view phase, const absl::Status& mine,
                   absl::Duration timeout);

}  // namespace bulkhead
