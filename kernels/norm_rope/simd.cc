#include "simd.h"

namespace bulkhead::BH_ISA {
namespace {

// Heads of a row are adjacent, and hardware prefetching stays within a page.
constexpr int kRowAhead = 512;

}  // namespace

void Rotate(const float* rope, int rotary_dim, bool interleaved, int distance, float* x) {
  const int half = rotary_dim / 2;
  for (int i = 0; i < half; i += kLanes) {
    const int n = half - i < kLanes ? half - i : kLanes;
    const F32x16 c = LoadN(rope + i, n);
    const F32x16 s = LoadN(rope + half + i, n);
    float pairs[2][kLanes] = {};  // if interleaved
    for (int j = 0; interleaved && j < n; ++j) {
      pairs[0][j] = x[2 * (i + j)];
      pairs[1][j] = x[2 * (i + j) + 1];
    }
    Prefetch(x + i + kRowAhead);
    Prefetch(x + distance + i + kRowAhead);
    const F32x16 x1 = LoadN(interleaved ? pairs[0] : x + i, n);
    const F32x16 x2 = LoadN(interleaved ? pairs[1] : x + distance + i, n);
    StoreN(interleaved ? pairs[0] : x + i, Fnma(x2, s, Mul(x1, c)), n);
    StoreN(interleaved ? pairs[1] : x + distance + i, Fma(x2, c, Mul(x1, s)), n);
    for (int j = 0; interleaved && j < n; ++j) {
      x[2 * (i + j)] = pairs[0][j];
      x[2 * (i + j) + 1] = pairs[1][j];
    }
  }
}

}  // namespace bulkhead::BH_ISA
