#include "runtime/engine/logits_row.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>

#include "base/check.h"
#include "base/portable_math.h"
#include "base/token_sampling.h"

namespace bulkhead {
namespace {

// Loops over a whole row. Each is compiled for three instruction sets, with the same bits: no
// product is fused with a sum (the build forbids it), and a maximum is exact in any order.
#define BH_ROW_LOOP [[gnu::always_inline]] static

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct NoneAbove {
  BH_ROW_LOOP bool Run(float limit, const float* row, int64_t count) {
    int32_t above = 0;
    for (int64_t i = 0; i < count; ++i) above |= row[i] <= limit ? 0 : 1;
    return above == 0;
  }
};

struct Max {
  BH_ROW_LOOP float Run(const float* row, int64_t count) {
    constexpr int kLanes = 64;
    float lanes[kLanes];
    for (float& lane : lanes) lane = kLowest;
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

struct Maxima {
  BH_ROW_LOOP bool Run(const float* __restrict row, int64_t count, float* __restrict maxima) {
    bool ok = true;
    for (int64_t begin = 0; begin < count; begin += kChunkIds, maxima += kGroups) {
      const float* const block = row + begin;
      const int64_t ids = std::min<int64_t>(kChunkIds, count - begin);
      ok &= NoneAbove::Run(kLargest, block, ids);
      float lanes[kGroups];
      for (float& lane : lanes) lane = kLowest;
      int64_t i = 0;
      for (; i + kGroups <= ids; i += kGroups) {
        for (int g = 0; g < kGroups; ++g) {
          lanes[g] = block[i + g] > lanes[g] ? block[i + g] : lanes[g];
        }
      }
      for (int g = 0; i < ids; ++i, ++g) lanes[g] = block[i] > lanes[g] ? block[i] : lanes[g];
      for (int g = 0; g < kGroups; ++g) maxima[g] = lanes[g];
    }
    return ok;
  }
};

// Ids from `first_id` on whose logits are in [least, most].
struct Collect {
  BH_ROW_LOOP int64_t Run(const float* __restrict row, int64_t count, float least, float most,
                          int64_t first_id, TokenId* __restrict ids) {
    constexpr int64_t kPiece = 32;  // most pieces have none
    int64_t size = 0;
    for (int64_t begin = 0; begin < count; begin += kPiece) {
      const float* const piece = row + begin;
      const int64_t left = std::min(kPiece, count - begin);
      if (left == kPiece) {
        int32_t any = 0;
        for (int64_t i = 0; i < kPiece; ++i) any |= (piece[i] >= least) & (piece[i] <= most);
        if (any == 0) continue;
      }
      for (int64_t i = 0; i < left; ++i) {  // without branches, which could not be predicted
        ids[size] = static_cast<TokenId>(first_id + begin + i);
        size += (piece[i] >= least) & (piece[i] <= most);
      }
    }
    return size;
  }
};

struct KeepBits {
  BH_ROW_LOOP void Run(const uint32_t* __restrict mask, float* __restrict logits, int64_t count) {
    int64_t begin = 0;
    for (; begin + 32 <= count; begin += 32, ++mask) {
      const uint32_t word = *mask;
      for (int bit = 0; bit < 32; ++bit) {
        logits[begin + bit] = (word >> bit & 1U) != 0 ? logits[begin + bit] : kLowest;
      }
    }
    for (int bit = 0; begin + bit < count; ++bit) {
      if ((*mask >> bit & 1U) == 0) logits[begin + bit] = kLowest;
    }
  }
};

struct Weigh {
  BH_ROW_LOOP void Run(const float* __restrict logits, int64_t count, double max,
                       double per_temperature, double least, double least_logit,
                       double* __restrict weights) {
    for (int64_t i = 0; i < count; ++i) {
      const auto logit = static_cast<double>(logits[i]);
      const double weight = ExpOfNonPositive((logit - max) * per_temperature);
      weights[i] = weight >= least && logit >= least_logit ? weight : 0.0;
    }
  }
};

// 2^f for f in [-1/2, 1/2], the Taylor polynomial of e^(f ln 2): relative error below 2^-37.
[[gnu::always_inline]] inline double ExpOf2(double f) {
  constexpr double kLn2 = 0.69314718055994531;
  constexpr auto coefficient = [](int n) {
    double c = 1;
    for (int k = 1; k <= n; ++k) c *= kLn2 / k;
    return c;
  };
  double p = coefficient(9);
  p = __builtin_fma(p, f, coefficient(8));
  p = __builtin_fma(p, f, coefficient(7));
  p = __builtin_fma(p, f, coefficient(6));
  p = __builtin_fma(p, f, coefficient(5));
  p = __builtin_fma(p, f, coefficient(4));
  p = __builtin_fma(p, f, coefficient(3));
  p = __builtin_fma(p, f, coefficient(2));
  p = __builtin_fma(p, f, coefficient(1));
  return __builtin_fma(p, f, 1.0);
}

struct WeighQuickly {
  BH_ROW_LOOP void Run(const float* __restrict logits, int64_t count, double max, double scale,
                       double least_logit, double* __restrict weights) {
    constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
    for (int64_t i = 0; i < count; ++i) {
      const auto logit = static_cast<double>(logits[i]);
      const double t = (logit - max) * scale;
      const double clamped = t > -120.0 ? t : -120.0;
      const double shifted = clamped + kRounder;
      const double p = ExpOf2(clamped - (shifted - kRounder));
      const double weight = std::bit_cast<double>(std::bit_cast<uint64_t>(p) +
                                                  (std::bit_cast<uint64_t>(shifted) << 52));
      weights[i] = t > -120.0 && logit >= least_logit ? weight : 0.0;
    }
  }
};

// Sums every 32nd element, then those sums.
struct SumAtLeast {
  BH_ROW_LOOP double Run(double least, const double* weights, int64_t count) {
    constexpr int kLanes = 32;
    double lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += weights[i + lane] >= least ? weights[i + lane] : 0.0;
      }
    }
    for (; i < count; ++i) lanes[0] += weights[i] >= least ? weights[i] : 0.0;
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return sum;
  }
};

struct CountAbove {
  BH_ROW_LOOP int Run(float limit, const float* row, int64_t count) {
    int above = 0;
    for (int64_t i = 0; i < count; ++i) above += row[i] > limit ? 1 : 0;
    return above;
  }
};

struct CountAtLeast {
  BH_ROW_LOOP int Run(float limit, const float* row, int64_t count) {
    int at_least = 0;
    for (int64_t i = 0; i < count; ++i) at_least += row[i] >= limit ? 1 : 0;
    return at_least;
  }
};

template <typename Loop, typename... Args>
[[gnu::target("avx512f,avx512dq,prefer-vector-width=512")]] auto RunAvx512(Args... args) {
  return Loop::Run(args...);
}
template <typename Loop, typename... Args>
[[gnu::target("avx2,fma")]] auto RunAvx2(Args... args) {
  return Loop::Run(args...);
}
bool HasAvx512() {
  static const bool has =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  return has;
}
bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return has;
}
template <typename Loop, typename... Args>
auto Run(Args... args) {
  if (HasAvx512()) return RunAvx512<Loop>(args...);
  return HasAvx2() ? RunAvx2<Loop>(args...) : Loop::Run(args...);
}
// False if the CPU has no FMA: in software it would be slower than what it replaces.
template <typename Loop, typename... Args>
bool RunWithFma(Args... args) {
  if (HasAvx512()) {
    RunAvx512<Loop>(args...);
  } else if (HasAvx2()) {
    RunAvx2<Loop>(args...);
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool HasNoNanOrPositiveInf(absl::Span<const float> logits) {
  return Run<NoneAbove>(kLargest, logits.data(), std::ssize(logits));
}

float MaxOf(absl::Span<const float> logits) { return Run<Max>(logits.data(), std::ssize(logits)); }

TokenId ArgMax(absl::Span<const float> logits) {
  const float max = MaxOf(logits);
  if (!(max > kLowest)) return -1;
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), max) - logits.begin());
}

bool FindMaxima(absl::Span<const float> logits, int64_t begin, int64_t end, float* maxima) {
  const int64_t first = begin * kChunkIds;
  const int64_t count = std::min(end * kChunkIds, std::ssize(logits)) - first;
  return Run<Maxima>(logits.data() + first, count, maxima + begin * kGroups);
}

TokenId MostLikely(absl::Span<const float> logits, absl::Span<const float> maxima) {
  const float max = MaxOf(maxima);
  const auto group = std::find(maxima.begin(), maxima.end(), max) - maxima.begin();
  const auto chunk = logits.begin() + group / kGroups * kChunkIds;
  return static_cast<TokenId>(std::find(chunk, logits.end(), max) - logits.begin());
}

int64_t CollectBetween(absl::Span<const float> logits, const float* maxima, int64_t begin,
                       int64_t end, float least, float most, TokenId* ids) {
  int64_t size = 0;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    if (Run<Max>(maxima + chunk * kGroups, int64_t{kGroups}) < least) continue;
    const int64_t first = chunk * kChunkIds;
    const int64_t count = std::min<int64_t>(kChunkIds, std::ssize(logits) - first);
    size += Run<Collect>(logits.data() + first, count, least, most, first, ids + size);
  }
  return size;
}

void KeepMasked(const uint32_t* mask, absl::Span<float> logits) {
  Run<KeepBits>(mask, logits.data(), std::ssize(logits));
}

void ComputeWeights(const float* logits, int64_t count, double max, double per_temperature,
                    double least, float least_logit, double* weights) {
  Run<Weigh>(logits, count, max, per_temperature, least, static_cast<double>(least_logit), weights);
}

bool ComputeWeightsQuickly(const float* logits, int64_t count, double max, double per_temperature,
                           float least_logit, double* weights) {
  constexpr double kLog2E = 1.4426950408889634;
  return RunWithFma<WeighQuickly>(logits, count, max, per_temperature * kLog2E,
                                  static_cast<double>(least_logit), weights);
}

double SumInLanes(const double* weights, int64_t count) {
  return SumInLanesAtLeast(0, weights, count);
}

double SumInLanesAtLeast(double least, const double* weights, int64_t count) {
  return Run<SumAtLeast>(least, weights, count);
}

// Eight chunks at once: within one each addition waits for the previous one.
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

int64_t SelectBest(absl::Span<const float> logits, int64_t count, TokenId* best) {
  const MoreLikely better{logits.data()};
  const auto vocab_size = static_cast<int64_t>(logits.size());
  count = std::min(count, vocab_size);
  BH_CHECK(count <= kHeapMax);
  if (count <= 0) return 0;
  // A heap with the smallest of the top on top. Ids ascend, so a tie with it loses.
  int64_t size = 0;
  float worst = 0;
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (size == count && !(logits[id] > worst)) continue;
    if (size == count) std::pop_heap(best, best + size--, better);
    best[size++] = static_cast<TokenId>(id);
    std::push_heap(best, best + size, better);
    worst = logits[best[0]];
  }
  std::sort_heap(best, best + size, better);
  return size;
}

namespace {

// The sum of all weights: quickly (false: the CPU cannot), and in the order of ids.
bool SumQuickly(absl::Span<const float> logits, double max, double* sum) {
  double weights[kChunkIds];
  *sum = 0;
  for (int64_t begin = 0; begin < std::ssize(logits); begin += kChunkIds) {
    const int64_t count = std::min<int64_t>(kChunkIds, std::ssize(logits) - begin);
    if (!ComputeWeightsQuickly(logits.data() + begin, count, max, 1, kLowest, weights))
      return false;
    *sum += SumInLanes(weights, count);
  }
  return true;
}

double SumInOrder(absl::Span<const float> logits, double max) {
  constexpr int64_t kTile = 8 * kChunkIds;
  double weights[kTile];
  double sums[kTile / kChunkIds];
  double sum = 0;
  for (int64_t begin = 0; begin < std::ssize(logits); begin += kTile) {
    const int64_t count = std::min<int64_t>(kTile, std::ssize(logits) - begin);
    ComputeWeights(logits.data() + begin, count, max, 1, 0, kLowest, weights);
    SumChunks(weights, count, sums);
    for (int64_t c = 0; c < CeilDiv(count, kChunkIds); ++c) sum += sums[c];
  }
  return sum;
}

}  // namespace

RowLogprobs::RowLogprobs(absl::Span<const float> logits, float max) : logits_(logits), max_(max) {
  double sum = 0;
  if (SumQuickly(logits, max, &sum)) {
    error_ = SumError(std::ssize(logits)) + 1e-14 * (1 + LogOfAtLeastOne(sum));  // the logarithm's
  } else {
    sum = SumInOrder(logits, max);
  }
  log_sum_ = LogOfAtLeastOne(sum);
}

float RowLogprobs::Of(TokenId id) {
  const double logit = static_cast<double>(logits_[id]) - max_;
  if (error_ > 0 && static_cast<float>(logit - (log_sum_ - error_)) !=
                        static_cast<float>(logit - (log_sum_ + error_))) {
    log_sum_ = LogOfAtLeastOne(SumInOrder(logits_, static_cast<float>(max_)));
    error_ = 0;
  }
  return static_cast<float>(logit - log_sum_);
}

int RowLogprobs::RankOf(TokenId id) const {
  const float logit = logits_[id];
  return 1 + Run<CountAtLeast>(logit, logits_.data(), int64_t{id}) +
         Run<CountAbove>(logit, logits_.data() + id + 1, std::ssize(logits_) - id - 1);
}

}  // namespace bulkhead
