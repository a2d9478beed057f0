#include "comm/tree_sum.h"

#include <algorithm>
#include <cstring>

namespace bulkhead {
namespace {

constexpr int64_t kBlock = 1024;  // floats: partial sums of a deeper tree stay in the L1 cache

void AddTwo(const float* a, const float* b, int64_t count, float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

void AddThree(const float* a, const float* b, const float* c, int64_t count,
              float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) sum[i] = (a[i] + b[i]) + c[i];
}

void AddFour(const float* const* t, int64_t at, int64_t count, float* __restrict sum) {
  const float* a = t[0] + at;
  const float* b = t[1] + at;
  const float* c = t[2] + at;
  const float* d = t[3] + at;
  for (int64_t i = 0; i < count; ++i) sum[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

// Sums the subtree over t[0..n), elements [at, at + count), count <= kBlock, into sum[0..count).
void AddSubtree(const float* const* t, int64_t n, int64_t at, int64_t count, float* sum) {
  switch (n) {
    case 1:
      std::memcpy(sum, t[0] + at, count * sizeof(float));
      return;
    case 2:
      AddTwo(t[0] + at, t[1] + at, count, sum);
      return;
    case 3:
      AddThree(t[0] + at, t[1] + at, t[2] + at, count, sum);
      return;
    case 4:
      AddFour(t, at, count, sum);
      return;
    default:
      break;
  }
  const int64_t left = (n + 1) / 2;
  float right_sum[kBlock];
  AddSubtree(t, left, at, count, sum);
  AddSubtree(t + left, n - left, at, count, right_sum);
  for (int64_t i = 0; i < count; ++i) sum[i] += right_sum[i];
}

}  // namespace

void TreeSum(absl::Span<const float* const> partial_sums, int64_t begin, int64_t end, float* sum) {
  const auto n = static_cast<int64_t>(partial_sums.size());
  for (int64_t at = begin; at < end; at += kBlock) {
    AddSubtree(partial_sums.data(), n, at, std::min(kBlock, end - at), sum + at);
  }
}

}  // namespace bulkhead
