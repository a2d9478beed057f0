// The host version of kernels/cuda/device/wgmma_intrinsics.h. Products are computed when they are
// waited for; until then their sums are NaN.
#pragma once

#include <type_traits>

#include "intrinsics.h"

namespace bulkhead::cuda {

inline constexpr int kWarpgroup = 128;

template <int kRegisters>
void GiveRegisters() {}
template <int kRegisters>
void TakeRegisters() {}

uint64_t TilesOf(const void* shared, int column_step);
inline uint64_t FurtherTiles(uint64_t tiles_of, int tiles) {
  return tiles_of + static_cast<uint64_t>(tiles * (1024 >> 4));
}
inline uint64_t FurtherColumns(uint64_t tiles_of, int columns) {
  return tiles_of + static_cast<uint64_t>(columns / 8);
}

void FenceForProducts();
void BeginProducts();
void CommitProducts();
void WaitForProductsUntil(int left);
template <int kLeft, int kCount>
void WaitForProducts(float (&/*c*/)[kCount]) {
  WaitForProductsUntil(kLeft);
}
template <int kLeft>
void WaitForEarlierProducts() {
  WaitForProductsUntil(kLeft);
}

struct ProductKind {
  bool is_f16 = false;  // else bf16
  bool b_is_rows = false;
};
void BeginProduct(ProductKind kind, float* c, int count, const uint32_t (&a)[4], uint64_t b,
                  bool add);
void BeginProduct(ProductKind kind, float* c, int count, uint64_t a, uint64_t b, bool add);

template <int kCount, typename A>
void ProductBf16(float (&c)[kCount], const A& a, uint64_t b, bool add) {
  static_assert(kCount == 32 || kCount == 64);
  BeginProduct({}, c, kCount, a, b, add);
}
template <int kCount, typename A>
void ProductF16(float (&c)[kCount], const A& a, uint64_t b, bool add) {
  static_assert(kCount == 32 || kCount == 64);
  BeginProduct({.is_f16 = true}, c, kCount, a, b, add);
}
template <int kCount, typename A>
void RowProductBf16(float (&c)[kCount], const A& a, uint64_t b, bool add) {
  static_assert(kCount == 8 || kCount == 16 || kCount == 32 || kCount == 64 ||
                (kCount == 128 && std::is_same_v<A, uint64_t>));
  BeginProduct({.b_is_rows = true}, c, kCount, a, b, add);
}
template <int kCount, typename A>
void RowProductF16(float (&c)[kCount], const A& a, uint64_t b, bool add) {
  static_assert(kCount == 8 || kCount == 16 || kCount == 32 || kCount == 64 ||
                (kCount == 128 && std::is_same_v<A, uint64_t>));
  BeginProduct({.is_f16 = true, .b_is_rows = true}, c, kCount, a, b, add);
}

}  // namespace bulkhead::cuda
