#include "comm/shm/region.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "comm/exchange.h"

namespace bulkhead {
namespace {

constexpr int64_t kHeadBytes = 4096;

}  // namespace

std::string RankName(const RankTopology& topology, Region& region, int rank) {
  return topology.NameOf(rank, region.liveness(rank).pid.load());
}

int64_t Region::Bytes(int size) {
  return kHeadBytes + size * (int64_t{sizeof(PerRank)} + 2 * kMailboxBytes) +
         kBusChunks * int64_t{sizeof(BusChunk)};
}

Region::Region(SharedMemory memory, int rank, int size)
    : memory_(std::move(memory)), rank_(rank), size_(size) {
  static_assert(sizeof(Head) <= kHeadBytes);
  BH_CHECK(size >= 1 && size <= kMaxLocalRanks && rank >= 0 && rank < size);
  std::byte* at = memory_.get();
  head_ = reinterpret_cast<Head*>(at);
  at += kHeadBytes;
  ranks_ = reinterpret_cast<PerRank*>(at);
  at += size * sizeof(PerRank);
  mailboxes_ = at;
  at += 2 * size * kMailboxBytes;
  chunks_ = reinterpret_cast<BusChunk*>(at);
}

absl::Status Region::Wait(Signal& signal, uint32_t count, int64_t deadline_ns) {
  switch (WaitFor(signal, count, head_->abort, {may_spin_, deadline_ns})) {
    case WaitResult::kReached:
      return absl::OkStatus();
    case WaitResult::kAborted:
      return abort_status();
    case WaitResult::kDeadline:
      break;
  }
  return absl::DeadlineExceededError("");
}

void Region::Abort(const absl::Status& why) {
  BH_CHECK(!why.ok());
  uint32_t none = 0;
  if (!head_->abort.compare_exchange_strong(none, 1)) return;
  const std::string text = EncodeStatus(why);
  head_->abort_bytes = static_cast<uint32_t>(std::min(text.size(), head_->abort_text.size()));
  std::memcpy(head_->abort_text.data(), text.data(), head_->abort_bytes);
  head_->abort.store(2);
  for (int rank = 0; rank < size_; ++rank) {
    WakeSleepers(exchange(rank));
    WakeSleepers(sums(rank));
    WakeSleepers(bus(rank));
  }
}

absl::Status Region::abort_status() const {
  // Writing the text takes microseconds, unless its writer is not scheduled or has died.
  constexpr int64_t kWriteNanos = 2'000'000'000;
  if (head_->abort.load(std::memory_order_acquire) == 0) return absl::OkStatus();
  const int64_t until_ns = MonotonicNanos() + kWriteNanos;
  while (head_->abort.load(std::memory_order_acquire) != 2) {
    if (MonotonicNanos() > until_ns) {
      return WithExitCode(absl::UnavailableError("the group was aborted"), ExitCode::kRankLost);
    }
    usleep(1000);
  }
  const size_t bytes = std::min<size_t>(head_->abort_bytes, head_->abort_text.size());
  return DecodeStatus(absl::string_view(head_->abort_text.data(), bytes));
}

}  // namespace bulkhead
