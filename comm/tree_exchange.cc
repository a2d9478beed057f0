#include "comm/tree_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
namespace {

// A node that misses one of its own ranks can name it; the others give it time to report.
constexpr absl::Duration kGrace = absl::Milliseconds(500);

}  // namespace

absl::StatusOr<std::vector<std::string>> TreeExchange::AllGather(absl::string_view mine,
                                                                 absl::Duration timeout) {
  BH_RETURN_IF_ERROR(given_up_);
  const int64_t deadline_ns = timeout == absl::InfiniteDuration()
                                  ? kNoDeadline
                                  : MonotonicNanos() + absl::ToInt64Nanoseconds(timeout + kGrace);
  BH_ASSIGN_OR_RETURN(std::vector<std::string> here, node_.AllGather(mine, timeout));
  texts_.assign(topology_.size, "");
  const std::vector<int> local = topology_.RanksOf(topology_.node());
  for (size_t i = 0; i < local.size(); ++i) texts_[local[i]] = std::move(here[i]);
  if (link_ != nullptr) {
    given_up_ = SwapBetweenNodes(deadline_ns);
    BH_RETURN_IF_ERROR(given_up_);
  }
  for (int rank = 0; rank < topology_.size; ++rank) {
    if (topology_.nodes[rank] == topology_.node()) continue;
    // The other ranks of a node wait as long as their leader.
    BH_ASSIGN_OR_RETURN(std::vector<std::string> handed,
                        node_.AllGather(texts_[rank], timeout + 2 * kGrace));
    texts_[rank] = std::move(handed[0]);
  }
  return std::exchange(texts_, {});
}

absl::Status TreeExchange::SwapBetweenNodes(int64_t deadline_ns) {
  const int here = topology_.node();
  lengths_.assign(topology_.size, 0);
  for (const int rank : topology_.RanksOf(here)) {
    lengths_[rank] = static_cast<int64_t>(texts_[rank].size());
  }
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int node = 0; node < link_->num_nodes(); ++node) {
    if (node == here) continue;
    for (const int rank : topology_.RanksOf(here)) {
      sends.push_back({node, &lengths_[rank], sizeof(int64_t)});
    }
    for (const int rank : topology_.RanksOf(node)) {
      receives.push_back({.node = node, .data = &lengths_[rank], .row_bytes = sizeof(int64_t)});
    }
  }
  BH_RETURN_IF_ERROR(TransferOrName(sends, receives, deadline_ns));
  sends.clear();
  receives.clear();
  for (int rank = 0; rank < topology_.size; ++rank) {
    BH_CHECK(lengths_[rank] >= 0 && lengths_[rank] <= kMaxExchangeBytes);
    if (lengths_[rank] == 0) continue;
    if (topology_.nodes[rank] != here) {
      texts_[rank].resize(lengths_[rank]);
      receives.push_back({.node = topology_.nodes[rank],
                          .data = texts_[rank].data(),
                          .row_bytes = lengths_[rank]});
      continue;
    }
    for (int node = 0; node < link_->num_nodes(); ++node) {
      if (node != here) sends.push_back({node, texts_[rank].data(), lengths_[rank]});
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
  return WithExitCode(
      absl::DeadlineExceededError(
          absl::StrCat("the ranks of host ", topology_.hosts[leader], " did not arrive in time")),
      ExitCode::kGroupNotUp);
}

}  // namespace bulkhead
