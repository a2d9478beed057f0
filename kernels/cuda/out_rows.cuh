// Stores numbers into rows of f32, or of the products' input format.
#pragma once

#include "intrinsics.h"
#include "kernels/cuda/parameters.h"

namespace bulkhead::cuda {

struct alignas(16) Floats4 {
  float v[4];
};

BH_DEVICE Floats4 LoadFour(const float* at) { return LoadVector<Floats4>(at); }
BH_DEVICE void StoreFour(float* at, const Floats4& x) { StoreVector(at, x); }

BH_DEVICE void StoreOut(const OutRows& out, int64_t at, float x) {
  if (out.numbers == Numbers::kF32) {
    static_cast<float*>(out.data)[at] = x;
  } else {
    static_cast<uint16_t*>(out.data)[at] =
        out.numbers == Numbers::kBF16 ? Bf16OfF32(x) : F16OfF32(x);
  }
}

// Stores four numbers from `at`, a multiple of 4, in aligned rows.
BH_DEVICE void StoreFourOut(const OutRows& out, int64_t at, const Floats4& x) {
  struct alignas(8) Pairs {
    uint32_t w[2];
  };
  if (out.numbers == Numbers::kF32) {
    StoreFour(static_cast<float*>(out.data) + at, x);
  } else {
    const bool bf16 = out.numbers == Numbers::kBF16;
    const Pairs pairs = {{bf16 ? Bf16Pair(x.v[0], x.v[1]) : F16Pair(x.v[0], x.v[1]),
                          bf16 ? Bf16Pair(x.v[2], x.v[3]) : F16Pair(x.v[2], x.v[3])}};
    StoreVector(static_cast<uint16_t*>(out.data) + at, pairs);
  }
}

}  // namespace bulkhead::cuda
