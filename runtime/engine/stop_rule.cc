#include "runtime/engine/stop_rule.h"

#include <algorithm>
#include <utility>

namespace bulkhead {
namespace {

bool Contains(const std::vector<TokenId>& sorted, TokenId token) {
  return std::binary_search(sorted.begin(), sorted.end(), token);
}

void SortUnique(std::vector<TokenId>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace

StopRule::StopRule(StoppingParams stopping, const std::vector<TokenId>& eos_ids,
                   int64_t max_total_tokens)
    : stopping_(std::move(stopping)), max_total_tokens_(max_total_tokens) {
  if (!stopping_.ignore_eos) eos_ids_ = eos_ids;
  SortUnique(eos_ids_);
  stop_ids_ = eos_ids_;
  stop_ids_.insert(stop_ids_.end(), stopping_.stop_token_ids.begin(),
                   stopping_.stop_token_ids.end());
  SortUnique(stop_ids_);
}

std::optional<TokenFinish> StopRule::Check(TokenId token, int64_t num_generated,
                                           int64_t total_tokens) const {
  if (!Bans(num_generated) && Contains(stop_ids_, token)) {
    const bool is_eos = Contains(eos_ids_, token);
    return TokenFinish{is_eos ? FinishReason::kEos : FinishReason::kStopToken, token};
  }
  if (num_generated >= stopping_.max_tokens) return TokenFinish{FinishReason::kMaxTokens, {}};
  if (total_tokens >= max_total_tokens_) return TokenFinish{FinishReason::kModelLength, {}};
  return std::nullopt;
}

bool StopRule::AtLimit(int64_t num_generated, int64_t total_tokens) const {
  return num_generated >= stopping_.max_tokens || total_tokens >= max_total_tokens_;
}

}  // namespace bulkhead
