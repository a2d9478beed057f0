#include "comm/clock_offsets.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>

#include "base/status.h"

namespace bulkhead {
namespace {

constexpr int kRounds = 32;
constexpr double kNanosPerMicro = 1e3;

struct Round {
  int64_t comes_ns = 0;
  int64_t leaves_ns = 0;
};
using Rounds = std::array<Round, kRounds>;

absl::StatusOr<Rounds> RoundsFrom(const std::string& bytes) {
  Rounds rounds;
  if (bytes.size() != sizeof(rounds)) {
    return absl::InternalError("ranks measured their clocks a different number of times");
  }
  std::memcpy(rounds.data(), bytes.data(), sizeof(rounds));
  return rounds;
}

ClockOffset OffsetBetween(const Rounds& rank0, const Rounds& other) {
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kRounds; ++i) {
    least = std::max(least, other[i].comes_ns - rank0[i].leaves_ns);
    most = std::min(most, other[i].leaves_ns - rank0[i].comes_ns);
  }
  // If a clock was set meanwhile, the bounds are swapped; the offset is between them either way.
  const double half = static_cast<double>(most - least) / 2;
  return {(static_cast<double>(least) + half) / kNanosPerMicro, std::abs(half) / kNanosPerMicro};
}

}  // namespace

int64_t RealtimeNanos() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

absl::StatusOr<std::vector<ClockOffset>> MeasureClockOffsets(
    GroupExchange& exchange, absl::Duration timeout, const std::function<int64_t()>& clock_ns) {
  Rounds mine;
  for (Round& round : mine) {
    round.comes_ns = clock_ns();
    BH_RETURN_IF_ERROR(exchange.AllGather("", timeout).status());
    round.leaves_ns = clock_ns();
  }
  BH_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      exchange.AllGather({reinterpret_cast<const char*>(mine.data()), sizeof(mine)}, timeout));
  BH_ASSIGN_OR_RETURN(const Rounds rank0, RoundsFrom(texts[0]));
  std::vector<ClockOffset> offsets(texts.size());
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    BH_ASSIGN_OR_RETURN(const Rounds other, RoundsFrom(texts[rank]));
    offsets[rank] = OffsetBetween(rank0, other);
  }
  return offsets;
}

}  // namespace bulkhead
