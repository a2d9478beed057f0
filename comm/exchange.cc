#include "comm/exchange.h"

#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"

namespace bulkhead {
namespace {

// Payload of a status that all ranks return.
constexpr char kAgreedUrl[] = "bulkhead/agreed";
constexpr int kMaxPayloads = 8;

absl::Status ExchangeFailed(absl::string_view phase, const absl::Status& status) {
  const absl::Status named = Prefixed(absl::StrCat(phase, ": "), status);
  return absl::IsDeadlineExceeded(status) ? WithExitCode(named, ExitCode::kGroupNotUp) : named;
}

}  // namespace

absl::Status Prefixed(absl::string_view prefix, const absl::Status& status) {
  absl::Status named(status.code(), absl::StrCat(prefix, status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { named.SetPayload(url, payload); });
  return named;
}

// "CODE PAYLOADS", a line "URL VALUE" per payload, and the message, the only part that may be
// truncated in transit.
std::string EncodeStatus(const absl::Status& status) {
  int num_payloads = 0;
  std::string payloads;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (url == kAgreedUrl) return;
    ++num_payloads;
    absl::StrAppend(&payloads, url, " ", absl::CEscape(std::string(payload)), "\n");
  });
  return absl::StrCat(static_cast<int>(status.code()), " ", num_payloads, "\n", payloads,
                      status.message());
}

absl::Status DecodeStatus(absl::string_view text) {
  const absl::Status malformed =
      absl::InternalError(absl::StrCat("not an encoded status: '", text.substr(0, 80), "'"));
  const std::pair<absl::string_view, absl::string_view> head_and_rest =
      absl::StrSplit(text, absl::MaxSplits('\n', 1));
  const std::pair<absl::string_view, absl::string_view> head =
      absl::StrSplit(head_and_rest.first, absl::MaxSplits(' ', 1));
  int code = 0;
  int num_payloads = 0;
  if (!absl::SimpleAtoi(head.first, &code) || !absl::SimpleAtoi(head.second, &num_payloads) ||
      num_payloads < 0 || num_payloads > kMaxPayloads) {
    return malformed;
  }
  const std::vector<absl::string_view> lines =
      absl::StrSplit(head_and_rest.second, absl::MaxSplits('\n', num_payloads));
  if (lines.size() != static_cast<size_t>(num_payloads) + 1) return malformed;
  absl::Status status(static_cast<absl::StatusCode>(code), lines.back());
  for (int i = 0; i < num_payloads; ++i) {
    const std::pair<absl::string_view, absl::string_view> payload =
        absl::StrSplit(lines[i], absl::MaxSplits(' ', 1));
    std::string value;
    if (!absl::CUnescape(payload.second, &value)) return malformed;
    status.SetPayload(payload.first, absl::Cord(value));
  }
  return status;
}

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
