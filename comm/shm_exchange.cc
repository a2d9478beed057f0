#include "comm/shm_exchange.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
namespace {

int64_t DeadlineIn(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return kNoDeadline;
  return MonotonicNanos() + absl::ToInt64Nanoseconds(timeout);
}

}  // namespace

std::string RankName(const RankTopology& topology, Region& region, int rank) {
  return topology.NameOf(rank, region.life(rank).pid.load());
}

// A message goes through the rank's mailbox in rounds of one piece each; all ranks take as many
// rounds as the longest message needs. Round k uses the mailboxes and notes of turn k % 2. A rank
// fills its mailbox for round k + 2 after all ranks have arrived in round k + 1 and so have read
// round k: nothing is overwritten unread.
absl::StatusOr<std::vector<std::string>> ShmExchange::AllGather(absl::string_view mine,
                                                                absl::Duration timeout) {
  BH_CHECK(static_cast<int64_t>(mine.size()) <= kMaxExchangeBytes);
  const int64_t deadline_ns = DeadlineIn(timeout);
  std::vector<std::string> all(topology_.size);
  int64_t rounds = 1;
  for (int64_t round = 0; round < rounds; ++round) {
    const int turn = static_cast<int>(++rounds_ % 2);
    const size_t begin = std::min<size_t>(round * kMailboxBytes, mine.size());
    const absl::string_view piece = mine.substr(begin, kMailboxBytes);
    std::memcpy(region_->mailbox(turn, topology_.rank), piece.data(), piece.size());
    Signal& arrival = region_->exchange(topology_.rank);
    arrival.notes[turn] = static_cast<int64_t>(mine.size());
    Raise(arrival, rounds_);
    BH_RETURN_IF_ERROR(AwaitAll(deadline_ns, timeout));
    for (int rank = 0; rank < topology_.size; ++rank) {
      const int64_t total = region_->exchange(rank).notes[turn];
      BH_CHECK(total >= 0 && total <= kMaxExchangeBytes);
      const int64_t left = total - static_cast<int64_t>(all[rank].size());
      all[rank].append(reinterpret_cast<const char*>(region_->mailbox(turn, rank)),
                       std::min(left, kMailboxBytes));
      rounds = std::max(rounds, (total + kMailboxBytes - 1) / kMailboxBytes);
    }
  }
  return all;
}

absl::Status ShmExchange::AwaitAll(int64_t deadline_ns, absl::Duration timeout) {
  std::vector<std::string> missing;
  for (int rank = 0; rank < topology_.size; ++rank) {
    const absl::Status status = region_->Wait(region_->exchange(rank), rounds_, deadline_ns);
    if (absl::IsDeadlineExceeded(status) && status.message().empty()) {
      missing.push_back(RankName(topology_, *region_, rank));
    } else if (!status.ok()) {
      return status;
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return WithExitCode(
      absl::DeadlineExceededError(absl::StrCat(
          absl::StrJoin(missing, ", "), " did not arrive within ", absl::FormatDuration(timeout))),
      ExitCode::kGroupNotUp);
}

}  // namespace bulkhead
