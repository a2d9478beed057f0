#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "comm/exchange.h"
#include "comm/status_codec.h"

namespace bulkhead {
namespace {

// `status` with `prefix` before its message; code, payloads and exit code are kept.
absl::Status Prefixed(absl::string_view prefix, const absl::Status& status) {
  absl::Status named(status.code(), absl::StrCat(prefix, status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { named.SetPayload(url, payload); });
  return named;
}

absl::Status ExchangeFailed(absl::string_view phase, const absl::Status& status) {
  const absl::Status named = Prefixed(absl::StrCat(phase, ": "), status);
  return absl::IsDeadlineExceeded(status) ? WithExitCode(named, ExitCode::kGroupNotUp) : named;
}

}  // namespace

bool IsAgreed(const absl::Status& status) {
  return status.ok() || status.GetPayload(kAgreedUrl).has_value();
}

absl::Status MarkAgreed(absl::Status status) {
  if (!status.ok()) status.SetPayload(kAgreedUrl, absl::Cord("1"));
  return status;
}

absl::Status Agree(GroupExchange& exchange, absl::string_view phase, const absl::Status& mine,
                   absl::Duration timeout) {
  const RankTopology& topology = exchange.topology();
  const auto all = exchange.AllGather(absl::StrCat(phase, "\n", EncodeStatus(mine)), timeout);
  if (!all.ok()) return ExchangeFailed(phase, all.status());

  std::vector<std::pair<std::string, absl::Status>> outcomes;  // phase and status, by rank
  for (const std::string& text : *all) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(text, absl::MaxSplits('\n', 1));
    outcomes.emplace_back(parts.first, DecodeStatus(parts.second));
  }
  for (int rank = 0; rank < topology.size; ++rank) {
    if (outcomes[rank].first == outcomes[0].first) continue;
    return MarkAgreed(WithExitCode(
        absl::InternalError(absl::StrCat("rank ", rank, " ends phase '", outcomes[rank].first,
                                         "' while rank 0 ends '", outcomes[0].first, "'")),
        ExitCode::kBug));
  }
  for (int rank = 0; rank < topology.size; ++rank) {
    const absl::Status& status = outcomes[rank].second;
    if (status.ok()) continue;
    if (topology.size == 1 && topology.world_ranks.empty()) return MarkAgreed(mine);
    return MarkAgreed(Prefixed(absl::StrCat(topology.NameOf(rank), ": "), status));
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
