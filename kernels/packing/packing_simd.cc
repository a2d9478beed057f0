// Compiled per instruction set.
#include "kernels/packing/packing_kernels.h"

#include "simd.h"

namespace bulkhead::BH_ISA {
namespace {

constexpr float kRounding = 12582912.0f;  // x + this - this: to nearest even, for |x| < 2^22
constexpr int32_t kInfinityBits = 0x7F800000;

BH_INLINE void StoreWords(uint32_t* p, I32x16 words) {
  Store(reinterpret_cast<float*>(p), FromBits(words));
}
BH_INLINE I32x16 LoadWords(const void* row, int64_t k) {
  return LoadI(static_cast<const int32_t*>(row) + k);
}
// Sixteen 16-bit numbers, each in the high half of a lane.
BH_INLINE I32x16 LoadHigh(const void* row, int64_t k) {
  return BitsOf(LoadBf16(static_cast<const uint16_t*>(row) + k));
}

template <typename Word>
BH_INLINE uint32_t WordAt(const void* row, int64_t k) {
  Word word;
  __builtin_memcpy(&word, static_cast<const char*>(row) + k * static_cast<int64_t>(sizeof(Word)),
                   sizeof(Word));
  return word;
}

// `load(i, k)` returns words k to k + 15 of row i, `word(i, k)` one.
template <typename LoadRow, typename Word>
BH_INLINE void Interleave(int64_t count, int64_t stride, uint32_t* out, const LoadRow& load,
                          const Word& word) {
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    I32x16 rows[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = load(i, k);
    Transpose(rows);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) StoreWords(out + (k + i) * stride, rows[i]);
  }
  for (; k < count; ++k) {
    for (int i = 0; i < kLanes; ++i) out[k * stride + i] = word(i, k);
  }
}

void PairHalves(const void* const low[16], const void* const high[16], int64_t count,
                uint32_t* out) {
  Interleave(
      count, kLanes, out,
      [&](int i, int64_t k) {
        return Add(LoadHigh(high[i], k), ShiftRight<16>(LoadHigh(low[i], k)));
      },
      [&](int i, int64_t k) {
        return WordAt<uint16_t>(low[i], k) | WordAt<uint16_t>(high[i], k) << 16;
      });
}

void InterleaveWords(const void* const rows[16], int64_t count, int64_t stride, uint32_t* out) {
  Interleave(
      count, stride, out, [&](int i, int64_t k) { return LoadWords(rows[i], k); },
      [&](int i, int64_t k) { return WordAt<uint32_t>(rows[i], k); });
}

void PairNibbles(const void* const low[16], const void* const high[16], int64_t count,
                 uint32_t* out) {
  Interleave(
      count, kLanes, out,
      [&](int i, int64_t k) {
        return Add(LoadWords(low[i], k), ShiftLeft<4>(LoadWords(high[i], k)));
      },
      [&](int i, int64_t k) {
        return WordAt<uint32_t>(low[i], k) | WordAt<uint32_t>(high[i], k) << 4;
      });
}

WeightRange RangeOf(const float* weights, int64_t count) {
  F32x16 min = Zero();
  F32x16 max = Zero();
  I32x16 magnitude = SetI1(0);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t left = count - i;
    const F32x16 part =
        left >= kLanes ? Load(weights + i) : LoadN(weights + i, static_cast<int>(left));
    min = Min(part, min);
    max = Max(part, max);
    magnitude = MaxI(magnitude, And(BitsOf(part), SetI1(0x7FFFFFFF)));
  }
  const float below = MaxLanes(Sub(Zero(), min));
  return {below > 0 ? -below : 0.0f, MaxLanes(max), MaxLanes(magnitude) < kInfinityBits};
}

void Encode(const float* weights, int64_t count, float inverse, float zero, float min, float max,
            uint8_t* codes) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int n = count - i < kLanes ? static_cast<int>(count - i) : kLanes;
    const F32x16 part = n == kLanes ? Load(weights + i) : LoadN(weights + i, n);
    const F32x16 steps = Min(Max(Mul(part, Set1(inverse)), Set1(-1e6f)), Set1(1e6f));
    const F32x16 rounded = Sub(Add(steps, Set1(kRounding)), Set1(kRounding));
    const I32x16 code = ToI32(Min(Max(Add(rounded, Set1(zero)), Set1(min)), Set1(max)));
    if (n == kLanes) {
      StoreBytes(codes + i, code);
      continue;
    }
    uint8_t tail[kLanes];
    StoreBytes(tail, code);
    __builtin_memcpy(codes + i, tail, static_cast<unsigned>(n));
  }
}

}  // namespace

const PackingKernels kPackingKernels = {
    PairHalves, InterleaveWords, PairNibbles, {RangeOf, Encode}};

}  // namespace bulkhead::BH_ISA
