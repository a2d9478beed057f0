// FixedHistogram: counts of a value by bucket, without an allocation: the bounds are a static
// array. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "absl/types/span.h"

namespace bulkhead {

class FixedHistogram {
 public:
  static constexpr size_t kMaxBounds = 31;

  // Inclusive upper bounds, ascending, at most kMaxBounds; they outlive this. An extra bucket
  // counts larger values.
  explicit constexpr FixedHistogram(absl::Span<const double> bounds)
      : bounds_(bounds.subspan(0, std::min(bounds.size(), kMaxBounds))) {}

  void Observe(double value) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    ++counts_[static_cast<size_t>(bucket)];
    ++count_;
    sum_ += value;
  }

  absl::Span<const double> bounds() const { return bounds_; }
  // Count per bucket, not cumulative: one more than bounds.
  absl::Span<const uint64_t> counts() const {
    return absl::MakeConstSpan(counts_).first(bounds_.size() + 1);
  }
  uint64_t count(size_t i) const { return counts_[i]; }
  uint64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  absl::Span<const double> bounds_;
  std::array<uint64_t, kMaxBounds + 1> counts_ = {};
  uint64_t count_ = 0;
  double sum_ = 0;
};

// The quantile `q` in (0, 1], interpolated linearly within each bucket (Prometheus'
// histogram_quantile) except the first, which is wide: there it is the bucket's bound. The last
// bound if it is larger. Requires at least one bound and one value.
inline double QuantileOf(absl::Span<const double> bounds, absl::Span<const uint64_t> counts,
                         double q) {
  const double rank =
      q * static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  double below = 0, low = bounds[0];
  for (size_t i = 0; i < bounds.size(); ++i) {
    const auto count = static_cast<double>(counts[i]);
    if (count > 0 && below + count >= rank) {
      return low + (bounds[i] - low) * (rank - below) / count;
    }
    below += count;
    low = bounds[i];
  }
  return low;
}

}  // namespace bulkhead
