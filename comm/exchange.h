// GroupExchange: small host messages between all ranks during start-up and shutdown, and Agree(),
// which ends every start-up phase. Called by the rank's main thread only. Also encodes a status as
// text, to send it between ranks.
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
  // Every rank's message, by rank; at most 64 MiB each. Every rank must call it, in the same order.
  // DEADLINE_EXCEEDED names the missing ranks if they are known; UNAVAILABLE when a rank is gone.
  // An error is final for the exchange.
  virtual absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                             absl::Duration timeout) = 0;
};

inline constexpr int64_t kMaxExchangeBytes = int64_t{64} << 20;

// Ends the start-up phase `phase`: ok if every rank is ok; otherwise every rank returns the same
// status: the lowest failed rank's, with its exit code (base/exit_code.h) and, if the group has
// more than one rank, its rank and host. A late rank is an error with ExitCode::kGroupNotUp.
absl::Status Agree(GroupExchange& exchange, absl::string_view phase, const absl::Status& mine,
                   absl::Duration timeout);

// `status` with `prefix` before its message; code, payloads and exit code are kept.
absl::Status Prefixed(absl::string_view prefix, const absl::Status& status);

// True for a status that every rank of the group returns: the result of Agree, or of equal inputs.
// With such a status all ranks may shut down in order (MPI_Finalize).
bool IsAgreed(const absl::Status& status);
absl::Status MarkAgreed(absl::Status status);

// Code, payloads (exit code, lost rank) and message; not whether it is agreed: receiving a status
// is not an agreement.
std::string EncodeStatus(const absl::Status& status);

// INTERNAL if `text` was not written by EncodeStatus.
absl::Status DecodeStatus(absl::string_view text);

}  // namespace bulkhead
