#include "comm/tree_exchange.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "memory/check.h"
#include "memory/exit_code.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

// A node whose own rank is missing can name it; the others give it the time to say so.
constexpr absl::Duration kGrace = absl::Milliseconds(500);

}  // namespace

absl::StatusOr<std::vector<std::string>> TreeExchange::AllGather(absl::string_view mine,
                                                                 absl::Duration timeout) {
  const int64_t deadline_ns = timeout == absl::InfiniteDuration()
                                  ? kNoDeadline
                                  : MonotonicNanos() + absl::ToInt64Nanoseconds(timeout + kGrace);
  BH_ASSIGN_OR_RETURN(std::vector<std::string> here, node_.AllGather(mine, timeout));
  std::vector<std::string> all(topology_.size);
  const std::vector<int> local = topology_.RanksOf(topology_.node());
  for (size_t i = 0; i < local.size(); ++i) all[local[i]] = std::move(here[i]);
  if (link_ != nullptr) BH_RETURN_IF_ERROR(SwapBetweenNodes(all, deadline_ns));
  for (int rank = 0; rank < topology_.size; ++rank) {
    if (topology_.nodes[rank] == topology_.node()) continue;
    // The ranks behind a leader wait as long as it does.
    BH_ASSIGN_OR_RETURN(std::vector<std::string> handed,
                        node_.AllGather(all[rank], timeout + 2 * kGrace));
    all[rank] = std::move(handed[0]);
  }
  return all;
}

absl::Status TreeExchange::SwapBetweenNodes(std::vector<std::string>& all, int64_t deadline_ns) {
  const int here = topology_.node();
  std::vector<int64_t> lengths(topology_.size);
  for (const int rank : topology_.RanksOf(here)) {
    lengths[rank] = static_cast<int64_t>(all[rank].size());
  }
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int node = 0; node < link_->num_nodes(); ++node) {
    if (node == here) continue;
    for (const int rank : topology_.RanksOf(here)) {
      sends.push_back({node, &lengths[rank], sizeof(int64_t)});
    }
    for (const int rank : topology_.RanksOf(node)) {
      receives.push_back({.node = node, .data = &lengths[rank], .row_bytes = sizeof(int64_t)});
    }
  }
  BH_RETURN_IF_ERROR(TransferOrName(sends, receives, deadline_ns));
  sends.clear();
  receives.clear();
  for (int rank = 0; rank < topology_.size; ++rank) {
    BH_CHECK(lengths[rank] >= 0 && lengths[rank] <= kMaxExchangeBytes);
    if (lengths[rank] == 0) continue;
    if (topology_.nodes[rank] != here) {
      all[rank].resize(lengths[rank]);
      receives.push_back(
          {.node = topology_.nodes[rank], .data = all[rank].data(), .row_bytes = lengths[rank]});
      continue;
    }
    for (int node = 0; node < link_->num_nodes(); ++node) {
      if (node != here) sends.push_back({node, all[rank].data(), lengths[rank]});
    }
  }
  return TransferOrName(sends, receives, deadline_ns);
}

absl::Status TreeExchange::TransferOrName(const std::vector<Outgoing>& sends,
                                          const std::vector<Incoming>& receives,
                                          int64_t deadline_ns) {
  const absl::Status status = link_->Transfer(LinkKind::kExchange, sends, receives, deadline_ns);
  if (!absl::IsDeadlineExceeded(status)) return status;
  const int node = std::max(0, region_.awaited_node());
  const int leader = topology_.RanksOf(node).front();
  return WithExitCode(absl::DeadlineExceededError(absl::StrCat(
                          "the ranks of host ", topology_.hosts[leader], " did not come in time")),
                      ExitCode::kGroupNotUp);
}

}  // namespace bulkhead
