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
  // What every rank put in, by rank; at most 64 MiB each. Every rank must call it, in the same
  // order. DEADLINE_EXCEEDED naming the ranks that are missing where that can be known; UNAVAILABLE
  // when a rank is gone. An error is final for the exchange.
  virtual absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                             absl::Duration timeout) = 0;
};

inline constexpr int64_t kMaxExchangeBytes = int64_t{64} << 20;

// Ends the start-up phase `phase`: ok when every rank is ok, else on every rank the same status,
// that of the lowest rank that failed, its exit code kept (base/exit_code.h) and its rank and
// host named when the group has more than one. A rank that does not come in time is an error with
// ExitCode::kGroupNotUp.
absl::Status Agree(GroupExchange& exchange, absl::string_view phase, const absl::Status& mine,
                   absl::Duration timeout);

// True for a status that every rank of the group returns alike: what Agree found, or what follows
// from equal inputs. With such a status all ranks may leave in good order (MPI_Finalize).
bool IsAgreed(const absl::Status& status);
absl::Status MarkAgreed(absl::Status status);

}  // namespace bulkhead
