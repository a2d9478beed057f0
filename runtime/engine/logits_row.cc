#include "runtime/engine/logits_row.h"

#include <algorithm>

#include "base/check.h"
#include "base/portable_math.h"
#include "base/token_sampling.h"

namespace bulkhead {

bool HasNoNanOrPositiveInf(absl::Span<const float> logits) {
  bool ok = true;
  for (const float logit : logits) ok &= logit <= std::numeric_limits<float>::max();
  return ok;
}

TokenId ArgMax(absl::Span<const float> logits, absl::Span<const TokenId> banned) {
  TokenId argmax = -1;
  float max = -std::numeric_limits<float>::infinity();
  ForAllowedRuns(static_cast<int64_t>(logits.size()), banned, [&](int64_t begin, int64_t end) {
    for (int64_t id = begin; id < end; ++id) {
      if (logits[id] > max) {
        max = logits[id];
        argmax = static_cast<TokenId>(id);
      }
    }
  });
  return argmax;
}

int64_t SelectBest(absl::Span<const float> logits, absl::Span<const TokenId> banned, int64_t count,
                   TokenId* best) {
  const MoreLikely better{logits.data()};
  const auto vocab_size = static_cast<int64_t>(logits.size());
  if (count <= 0) return 0;
  int64_t size = 0;
  if (count > kHeapMax) {
    ForAllowedRuns(vocab_size, banned, [&](int64_t begin, int64_t end) {
      for (int64_t id = begin; id < end; ++id) best[size++] = static_cast<TokenId>(id);
    });
    count = std::min(count, size);
    std::nth_element(best, best + count - 1, best + size, better);
    std::sort(best, best + count, better);
    return count;
  }
  // A heap with the smallest of the top on top. Ids ascend, so a tie with it loses.
  float worst = 0;
  ForAllowedRuns(vocab_size, banned, [&](int64_t begin, int64_t end) {
    for (int64_t id = begin; id < end; ++id) {
      if (size == count && !(logits[id] > worst)) continue;
      if (size == count) std::pop_heap(best, best + size--, better);
      best[size++] = static_cast<TokenId>(id);
      std::push_heap(best, best + size, better);
      worst = logits[best[0]];
    }
  });
  std::sort_heap(best, best + size, better);
  return size;
}

// A separate loop over plain pointers, so that it vectorises.
void ComputeWeights(const float* __restrict logits, int64_t count, double max,
                    double per_temperature, double* __restrict weights) {
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = ExpOfNonPositive((static_cast<double>(logits[i]) - max) * per_temperature);
  }
}

RowLogprobs::RowLogprobs(absl::Span<const float> logits) : logits_(logits) {
  const TokenId most_likely = ArgMax(logits, {});
  BH_CHECK(most_likely >= 0);
  max_ = logits[most_likely];
  double weights[kChunkIds];
  double sum = 0;
  const auto vocab_size = static_cast<int64_t>(logits.size());
  for (int64_t begin = 0; begin < vocab_size; begin += kChunkIds) {
    const int64_t count = std::min<int64_t>(kChunkIds, vocab_size - begin);
    ComputeWeights(logits.data() + begin, count, max_, 1, weights);
    double chunk_sum = 0;
    for (int64_t i = 0; i < count; ++i) chunk_sum += weights[i];
    sum += chunk_sum;
  }
  log_sum_ = LogOfAtLeastOne(sum);
}

int RowLogprobs::RankOf(TokenId id) const {
  const float logit = logits_[id];
  int rank = 1;
  for (int64_t other = 0; other < id; ++other) rank += logits_[other] >= logit ? 1 : 0;
  for (size_t other = id + 1; other < logits_.size(); ++other) {
    rank += logits_[other] > logit ? 1 : 0;
  }
  return rank;
}

}  // namespace bulkhead
