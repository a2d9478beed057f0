// The host version of kernels/cuda/device/wgmma_intrinsics.h. Products are computed when they are
// waited for, and until then their sums are no numbers.
#pragma once

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

void FenceForProducts();
void BeginProducts();
void CommitProducts();
void WaitForProductsUntil(int left);
template <int kLeft, int kCount>
void WaitForProducts(float (&/*c*/)[kCount]) {
  WaitForProductsUntil(kLeft);
}

enum class ProductNumbers { kBF16, kF16 };
void BeginProduct(ProductNumbers numbers, float* c, int count, const uint32_t (&a)[4], uint64_t b,
                  bool add);
void BeginProduct(ProductNumbers numbers, float* c, int count, uint64_t a, uint64_t b, bool add);

template <int kCount, typename A>
void ProductBf16(float (&c)[kCount], const A& a, uint64_t b, bool add) {
  static_assert(kCount == 32 || kCount == 64);
  BeginProduct(ProductNumbers::kBF16, c, kCount, a, b, add);
}
template <int kCount, typename A>
void ProductF16(float (&c)[kCount], const A& a, uint64_t b, bool add) {
  static_assert(kCount == 32 || kCount == 64);
  BeginProduct(ProductNumbers::kF16, c, kCount, a, b, add);
}

}  // namespace bulkhead::cuda
