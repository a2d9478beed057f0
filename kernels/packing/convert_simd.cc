// Memory-bound. Compiled per instruction set.
#include "kernels/packing/convert.h"

#include "simd.h"

namespace bulkhead::BH_ISA {
namespace {

struct F32 {
  using Word = float;
  BH_INLINE static F32x16 Get(const float* p, int n) { return LoadN(p, n); }
  BH_INLINE static F32x16 Get(const float* p) { return Load(p); }
  BH_INLINE static void Put(float* p, F32x16 a, int n) { StoreN(p, a, n); }
  BH_INLINE static void Put(float* p, F32x16 a) { Store(p, a); }
};

struct Bf16 {
  using Word = uint16_t;
  BH_INLINE static F32x16 Get(const uint16_t* p, int n) { return LoadBf16N(p, n); }
  BH_INLINE static F32x16 Get(const uint16_t* p) { return LoadBf16(p); }
  BH_INLINE static void Put(uint16_t* p, F32x16 a, int n) { StoreBf16N(p, a, n); }
  BH_INLINE static void Put(uint16_t* p, F32x16 a) { StoreBf16(p, a); }
};

struct F16 {
  using Word = uint16_t;
  BH_INLINE static F32x16 Get(const uint16_t* p, int n) { return LoadF16N(p, n); }
  BH_INLINE static F32x16 Get(const uint16_t* p) { return LoadF16(p); }
  BH_INLINE static void Put(uint16_t* p, F32x16 a, int n) { StoreF16N(p, a, n); }
  BH_INLINE static void Put(uint16_t* p, F32x16 a) { StoreF16(p, a); }
};

template <typename From, typename To>
void Convert(const void* from, int64_t count, void* to) {
  const auto* source = static_cast<const typename From::Word*>(from);
  auto* dest = static_cast<typename To::Word*>(to);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) To::Put(dest + i, From::Get(source + i));
  const int left = static_cast<int>(count - i);
  if (left > 0) To::Put(dest + i, From::Get(source + i, left), left);
}

}  // namespace

const ConvertKernels kConvertKernels = {Convert<Bf16, F32>, Convert<F16, F32>, Convert<F32, Bf16>,
                                        Convert<F16, Bf16>, Convert<F32, F16>, Convert<Bf16, F16>};

}  // namespace bulkhead::BH_ISA
