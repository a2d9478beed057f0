#include "runtime/engine/top_k.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>

#include "runtime/engine/logits_row.h"

namespace bulkhead {
namespace {

constexpr int kKeyBits = 12;

// A key that rises with the logit: its sign, exponent and three bits. -0 is 0.
uint32_t KeyOf(float logit) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0F);
  const uint32_t rising = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  return rising >> (32 - kKeyBits);
}

}  // namespace

int64_t SelectTopK(absl::Span<const float> logits, absl::Span<const float> maxima, int64_t k,
                   TokenId* ids, TokenId* scratch) {
  float least = std::numeric_limits<float>::lowest();
  if (k <= std::ssize(maxima)) {  // the k-th maximum bounds the k-th logit from below
    SelectBest(maxima, k, ids);
    least = std::max(least, maxima[ids[k - 1]]);
  }
  const int64_t found = CollectBetween(logits, maxima.data(), 0, NumChunks(std::ssize(logits)),
                                       least, std::numeric_limits<float>::max(), scratch);
  const int64_t count = std::min(found, k);
  if (found > k) std::nth_element(scratch, scratch + k, scratch + found, MoreLikely{logits.data()});
  std::copy_n(scratch, count, ids);
  return count;
}

LogitCut CutBehindTopK(absl::Span<const float> logits, int64_t k, double* scratch) {
  std::array<int32_t, 1 << kKeyBits> counts{};
  for (const float logit : logits) ++counts[KeyOf(logit)];
  uint32_t key = (1 << kKeyBits) - 1;
  int64_t left = k;  // to be kept of this key's ids
  while (counts[key] < left) left -= counts[key--];
  auto* const values = reinterpret_cast<float*>(scratch);
  int64_t size = 0;
  for (const float logit : logits) {
    values[size] = logit;
    size += KeyOf(logit) == key ? 1 : 0;
  }
  std::nth_element(values, values + left - 1, values + size, std::greater<>());
  LogitCut cut{.least = values[left - 1], .equal_end = 0};
  left -= std::count_if(values, values + left - 1, [&](float value) { return value > cut.least; });
  while (left > 0) left -= logits[cut.equal_end++] == cut.least ? 1 : 0;
  return cut;
}

}  // namespace bulkhead
