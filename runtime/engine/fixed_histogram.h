// FixedHistogram: counts of a value by bucket, without an allocation: the bounds are a static
// array. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace bulkhead {

class FixedHistogram {
 public:
  static constexpr size_t kMaxBounds = 31;

  // Upper bounds, inclusive, ascending, at most kMaxBounds; they outlive this. One more bucket
  // counts what is above.
  explicit constexpr FixedHistogram(absl::Span<const double> bounds)
      : bounds_(bounds.subspan(0, std::min(bounds.size(), kMaxBounds))) {}

  void Observe(double value) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    ++counts_[static_cast<size_t>(bucket)];
    ++count_;
    sum_ += value;
  }

  absl::Span<const double> bounds() const { return bounds_; }
  // Of bucket i alone, i <= bounds().size().
  uint64_t count(size_t i) const { return counts_[i]; }
  uint64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  absl::Span<const double> bounds_;
  std::array<uint64_t, kMaxBounds + 1> counts_ = {};
  uint64_t count_ = 0;
  double sum_ = 0;
};

}  // namespace bulkhead
