#include "runtime/engine/logits_row.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/portable_math.h"
#include "base/token_sampling.h"

namespace bulkhead {
namespace {

// Loops over a whole row. Each is compiled for three instruction sets, with the same bits: no
// product is fused with a sum (the build forbids it), and a maximum is exact in any order.
#define BH_ROW_LOOP [[gnu::always_inline]] static

struct NoneAbove {
  BH_ROW_LOOP bool Run(float limit, const float* row, int64_t count) {
    bool ok = true;
    for (int64_t i = 0; i < count; ++i) ok &= row[i] <= limit;
    return ok;
  }
};

struct Max {
  BH_ROW_LOOP float Run(const float* row, int64_t count) {
    constexpr int kLanes = 64;
    float lanes[kLanes];
    for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = row[i + lane] > lanes[lane] ? row[i + lane] : lanes[lane];
      }
    }
    for (; i < count; ++i) lanes[0] = row[i] > lanes[0] ? row[i] : lanes[0];
    return *std::max_element(lanes, lanes + kLanes);
  }
};

struct Weigh {
  BH_ROW_LOOP void Run(const float* __restrict logits, int64_t count, double max,
                       double per_temperature, double least, double* __restrict weights) {
    for (int64_t i = 0; i < count; ++i) {
      const double weight =
          ExpOfNonPositive((static_cast<double>(logits[i]) - max) * per_temperature);
      weights[i] = weight >= least ? weight : 0.0;
    }
  }
};

struct Drop {
  BH_ROW_LOOP void Run(double least, int64_t count, double* weights) {
    for (int64_t i = 0; i < count; ++i) weights[i] = weights[i] >= least ? weights[i] : 0.0;
  }
};

template <typename Loop, typename... Args>
[[gnu::target("avx512f,avx512dq,prefer-vector-width=512")]] auto RunAvx512(Args... args) {
  return Loop::Run(args...);
}
template <typename Loop, typename... Args>
[[gnu::target("avx2")]] auto RunAvx2(Args... args) {
  return Loop::Run(args...);
}
template <typename Loop, typename... Args>
auto Run(Args... args) {
  static const bool avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx512) return RunAvx512<Loop>(args...);
  return avx2 ? RunAvx2<Loop>(args...) : Loop::Run(args...);
}

}  // namespace

bool HasNoNanOrPositiveInf(absl::Span<const float> logits) {
  return Run<NoneAbove>(std::numeric_limits<float>::max(), logits.data(), std::ssize(logits));
}

TokenId ArgMax(absl::Span<const float> logits, absl::Span<const TokenId> banned) {
  int64_t run_begin = -1;
  float max = -std::numeric_limits<float>::infinity();
  ForAllowedRuns(std::ssize(logits), banned, [&](int64_t begin, int64_t end) {
    const float of_run = Run<Max>(logits.data() + begin, end - begin);
    if (of_run > max) {
      max = of_run;
      run_begin = begin;
    }
  });
  if (run_begin < 0) return -1;
  return static_cast<TokenId>(std::find(logits.begin() + run_begin, logits.end(), max) -
                              logits.begin());
}

void ComputeWeights(const float* logits, int64_t count, double max, double per_temperature,
                    double least, double* weights) {
  Run<Weigh>(logits, count, max, per_temperature, least, weights);
}

void DropBelow(double least, int64_t count, double* weights) { Run<Drop>(least, count, weights); }

// Eight chunks at once: within one each sum waits for the one before.
void SumChunks(const double* weights, int64_t count, double* sums) {
  constexpr int kAtOnce = 8;
  int64_t begin = 0;
  for (; begin + kAtOnce * kChunkIds <= count; begin += kAtOnce * kChunkIds) {
    double of_chunk[kAtOnce] = {};
    for (int64_t i = 0; i < kChunkIds; ++i) {
      for (int c = 0; c < kAtOnce; ++c) of_chunk[c] += weights[begin + c * kChunkIds + i];
    }
    std::copy_n(of_chunk, kAtOnce, sums + begin / kChunkIds);
  }
  for (; begin < count; begin += kChunkIds) {
    sums[begin / kChunkIds] = std::accumulate(
        weights + begin, weights + std::min<int64_t>(begin + kChunkIds, count), 0.0);
  }
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

RowLogprobs::RowLogprobs(absl::Span<const float> logits) : logits_(logits) {
  const TokenId most_likely = ArgMax(logits, {});
  BH_CHECK(most_likely >= 0);
  max_ = logits[most_likely];
  constexpr int64_t kTile = 8 * kChunkIds;
  double weights[kTile];
  double sums[kTile / kChunkIds];
  double sum = 0;
  for (int64_t begin = 0; begin < std::ssize(logits); begin += kTile) {
    const int64_t count = std::min<int64_t>(kTile, std::ssize(logits) - begin);
    ComputeWeights(logits.data() + begin, count, max_, 1, 0, weights);
    SumChunks(weights, count, sums);
    for (int64_t c = 0; c < CeilDiv(count, kChunkIds); ++c) sum += sums[c];
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
