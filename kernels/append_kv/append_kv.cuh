// Writes keys and values into the cache, in the formats of memory/kv_cache.h. A warp takes the key
// or the value of one head of one token.
#pragma once

#include "intrinsics.h"
#include "kernels/cuda/float_codes.cuh"
#include "kernels/cuda/parameters.h"
#include "memory/kv_format.h"

namespace bulkhead::cuda {

struct AppendKvParameters {
  CacheParameters cache;
  ConstRows qkv;
  int num_heads = 0;
  int num_kv_heads = 0;
  int parts = 2;  // keys and values; only keys in a latent cache
};

inline constexpr float kF16Max = 65504.0F;
inline constexpr uint16_t kF16Nan = 0x7e00;
inline constexpr int kInt4Group = 32;  // columns of a value whose codes share bytes

template <KvFormat kFormat>
BH_DEVICE void StoreNumber(unsigned char* elements, int64_t at, float x) {
  if constexpr (kFormat == KvFormat::kF32) {
    reinterpret_cast<float*>(elements)[at] = x;
  } else {
    reinterpret_cast<uint16_t*>(elements)[at] =
        kFormat == KvFormat::kBF16 ? Bf16OfF32(x) : F16OfF32(x);
  }
}

struct Scaling {
  uint16_t scale_bits = 0;
  uint16_t zero_bits = 0;
  float inverse = 0;  // 0 if all codes are 0
  float zero = 0;
  float levels = 0;

  BH_DEVICE uint32_t Code(float x) const {
    if (inverse == 0.0F) return 0;
    const float steps = (x - zero) * inverse;
    return static_cast<uint32_t>(rintf(fminf(fmaxf(steps, 0.0F), levels)));
  }
};

// Scaling of the d numbers that the warp's lanes share.
BH_DEVICE Scaling ScalingOf(const float* x, int head_dim, float levels) {
  float min = x[0];
  float max = x[0];
  int bad = 0;
  for (int i = LaneIndex(); i < head_dim; i += kWarp) {
    min = fminf(min, x[i]);
    max = fmaxf(max, x[i]);
    bad |= fabsf(x[i]) <= 3.4028235e38F ? 0 : 1;
  }
  BH_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    min = fminf(min, __shfl_xor_sync(kFullMask, min, mask));
    max = fmaxf(max, __shfl_xor_sync(kFullMask, max, mask));
    bad |= __shfl_xor_sync(kFullMask, bad, mask);
  }
  Scaling scaling;
  scaling.levels = levels;
  if (bad != 0) {
    scaling.scale_bits = scaling.zero_bits = kF16Nan;
    return scaling;
  }
  const float range_min = fminf(fmaxf(min, -kF16Max), kF16Max) + 0.0F;
  const float range_max = fminf(fmaxf(max, -kF16Max), kF16Max) + 0.0F;
  scaling.scale_bits = F16OfF32((range_max - range_min) / levels);
  scaling.zero_bits = F16OfF32(range_min);
  const float scale = F32OfF16(scaling.scale_bits);
  scaling.zero = F32OfF16(scaling.zero_bits);
  if (scale != 0.0F) scaling.inverse = 1.0F / scale;
  return scaling;
}

// Two codes per byte: adjacent numbers of a key, or the two halves of a value's group.
BH_DEVICE void StoreInt4(const Scaling& scaling, const float* x, int head_dim, bool is_key,
                         unsigned char* elements, int64_t first, int64_t step) {
  for (int byte = LaneIndex(); byte < head_dim / 2; byte += kWarp) {
    int low = 2 * byte;
    int high = low + 1;
    if (!is_key) {
      const int group = byte / (kInt4Group / 2) * kInt4Group;
      const int width = head_dim - group < kInt4Group ? head_dim - group : kInt4Group;
      low = group + (byte - group / 2);
      high = low + width / 2;
    }
    elements[first + byte * step] =
        static_cast<unsigned char>(scaling.Code(x[low]) | scaling.Code(x[high]) << 4);
  }
}

// Token blockIdx.x's key of head `unit`, or value of head `unit` - num_kv_heads, in x.
template <KvFormat kFormat>
BH_DEVICE void AppendHead(const AppendKvParameters& p, int unit, const float* x) {
  const bool is_key = unit < p.num_kv_heads;
  const int head = is_key ? unit : unit - p.num_kv_heads;
  const CacheParameters& c = p.cache;
  const int d = c.head_dim;
  const int position = c.position[int(blockIdx.x)];
  const int64_t row = c.seq_slot[c.token_seq[int(blockIdx.x)]];
  const int64_t block = c.block_tables[row * c.block_table_stride + (position >> c.block_shift)];
  const int token = position & (c.block_tokens - 1);
  unsigned char* const keys = c.base + block * c.block_bytes + head * c.head_bytes;
  unsigned char* const elements = is_key ? keys : keys + c.keys_bytes;
  if constexpr (kFormat == KvFormat::kFP8) {
    const float* const scales = is_key ? c.key_scales : c.value_scales;
    const float scale = scales != nullptr ? scales[head] : 1.0F;
    const int64_t first = is_key ? token : int64_t{token} * d;
    const int64_t step = is_key ? c.block_tokens : 1;
    for (int i = LaneIndex(); i < d; i += kWarp)
      elements[first + i * step] = E4m3OfF32(x[i], scale);
  } else if constexpr (!IsQuantized(kFormat)) {
    for (int i = LaneIndex(); i < d; i += kWarp) {
      StoreNumber<kFormat>(
          elements, is_key ? int64_t{i} * c.block_tokens + token : int64_t{token} * d + i, x[i]);
    }
  } else {
    const Scaling scaling = ScalingOf(x, d, kFormat == KvFormat::kInt8 ? 255.0F : 15.0F);
    const int64_t bytes = kFormat == KvFormat::kInt8 ? d : d / 2;  // bytes of a value
    const int64_t first = is_key ? token : token * bytes;
    const int64_t step = is_key ? c.block_tokens : 1;
    if constexpr (kFormat == KvFormat::kInt8) {
      for (int i = LaneIndex(); i < d; i += kWarp) {
        elements[first + i * step] = static_cast<unsigned char>(scaling.Code(x[i]));
      }
    } else {
      StoreInt4(scaling, x, d, is_key, elements, first, step);
    }
    auto* const scalings = reinterpret_cast<uint16_t*>(keys + p.parts * c.keys_bytes) +
                           (is_key ? 0 : 2 * c.block_tokens) + token;
    if (LaneIndex() == 0) scalings[0] = scaling.scale_bits;
    if (LaneIndex() == 0) scalings[c.block_tokens] = scaling.zero_bits;
  }
}

}  // namespace bulkhead::cuda
