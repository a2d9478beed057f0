// Loads 32 tokens of the cache into shared memory as tiles of 16-bit numbers, for attention with
// wide keys (wide.cuh). Keys are [dims][token], with the four chunks of 8 tokens of a row swizzled,
// so that rows of a tensor core tile are in different banks; dims beyond the key's are zero up to a
// multiple of 32. Codes are converted to numbers (attention_codes.cuh): they are copied
// asynchronously like numbers, and then expanded into a tile by the threads that copied them.
#pragma once

#include "intrinsics.h"
#include "kernels/attend/attention_cache.cuh"
#include "kernels/attend/attention_codes.cuh"
#include "kernels/attend/cuda_kernels.h"
#include "kernels/attend/decode_cache.cuh"

namespace bulkhead::cuda {

inline constexpr int kKeyChunks = kWideTokens / 8;  // of 16 bytes per row of a tile
inline constexpr int kWideKeyRowBytes = kWideTokens * 2;

// Offset of a chunk of 8 tokens of a dim in a tile.
BH_DEVICE int KeyChunkAt(int dim, int chunk) {
  return (dim * kKeyChunks + (chunk ^ (dim / 2 % kKeyChunks))) * 16;
}

// Dims that products read.
BH_DEVICE int KeyDims(const CacheParameters& cache) { return (cache.head_dim + 31) / 32 * 32; }

// Asynchronous copies of 16-bit keys. A thread's keys are of the same tokens in every dim.
template <int kMaxDim>
BH_DEVICE void CopyKeys(const HeadCache& head, int token0, const CacheRange& range,
                        unsigned char* tile) {
  const CacheParameters& cache = *head.cache;
  const int dims = KeyDims(cache);
  const int chunk = int(threadIdx.x) % kKeyChunks;
  const int token = token0 + chunk * 8;
  const bool seen = token + 7 >= range.first && token < range.end;
  const unsigned char* const keys = seen ? head.Keys(token) + head.InBlock(token) * 2 : cache.base;
  const int64_t dim_bytes = seen ? 2 * cache.block_tokens : 0;
  constexpr int kDimsAtOnce = kWideThreads / kKeyChunks;
  BH_UNROLL
  for (int dim0 = 0; dim0 < kMaxDim; dim0 += kDimsAtOnce) {
    const int dim = dim0 + int(threadIdx.x) / kKeyChunks;
    if (dim >= dims) break;
    const bool valid = seen && dim < cache.head_dim;
    CpAsync16(tile + KeyChunkAt(dim, chunk), valid ? keys + dim * dim_bytes : cache.base, valid);
  }
}

inline constexpr int kKeyCodeChunks = kWideTokens / 16;  // of 16 bytes per row of codes

// Codes of keys, [row][token]: with 4 bits a row has two dims.
template <KvFormat kFormat>
BH_DEVICE void CopyKeyCodes(const HeadCache& head, int token0, const CacheRange& range,
                            unsigned char* codes) {
  constexpr int kDimsOfRow = 8 / KvElementBits(kFormat);
  const CacheParameters& cache = *head.cache;
  const int chunk = int(threadIdx.x) % kKeyCodeChunks;
  const int token = token0 + chunk * 16;
  const bool seen = token + 15 >= range.first && token < range.end;
  const unsigned char* const keys = seen ? head.Keys(token) + head.InBlock(token) : cache.base;
  const int rows = KeyDims(cache) / kDimsOfRow;
  for (int row = int(threadIdx.x) / kKeyCodeChunks; row < rows;
       row += kWideThreads / kKeyCodeChunks) {
    const bool valid = seen && row * kDimsOfRow < cache.head_dim;
    CpAsync16(codes + (row * kKeyCodeChunks + chunk) * 16,
              valid ? keys + int64_t{row} * cache.block_tokens : cache.base, valid);
  }
}

// `scaling`: for a thread's two times 8 tokens.
template <KvFormat kFormat>
BH_DEVICE void ExpandKeyCodes(const CacheParameters& cache, const unsigned char* codes,
                              const ScalingOfEight (&scaling)[2], unsigned char* tile) {
  constexpr int kDimsOfRow = 8 / KvElementBits(kFormat);
  const int chunk = int(threadIdx.x) % kKeyCodeChunks;
  const int rows = KeyDims(cache) / kDimsOfRow;
  for (int row = int(threadIdx.x) / kKeyCodeChunks; row < rows;
       row += kWideThreads / kKeyCodeChunks) {
    const auto raw = LoadVector<Words4>(codes + (row * kKeyCodeChunks + chunk) * 16);
    BH_UNROLL
    for (int half = 0; half < 2; ++half) {
      BH_UNROLL
      for (int part = 0; part < kDimsOfRow; ++part) {
        StoreVector(
            tile + KeyChunkAt(row * kDimsOfRow + part, 2 * chunk + half),
            EightNumbers<kFormat>({raw.w[2 * half], raw.w[2 * half + 1]}, part, scaling[half]));
      }
    }
  }
}

// Clears tokens outside the range in chunks of keys that it cuts: their memory may hold NaNs, which
// as values would be multiplied by weights of 0.
BH_DEVICE void ClearUnseen(const CacheParameters& cache, int token0, const CacheRange& range,
                           unsigned char* tile) {
  for (int dim = int(threadIdx.x); dim < cache.head_dim; dim += kWideThreads) {
    BH_UNROLL
    for (int chunk = 0; chunk < kKeyChunks; ++chunk) {
      const int token = token0 + chunk * 8;
      if (token >= range.first && token + 8 <= range.end) continue;
      auto* const words = reinterpret_cast<uint32_t*>(tile + KeyChunkAt(dim, chunk));
      BH_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int first = token + 2 * i;
        const bool low = first >= range.first && first < range.end;
        const bool high = first + 1 >= range.first && first + 1 < range.end;
        words[i] &= (low ? 0x0000FFFFU : 0U) | (high ? 0xFFFF0000U : 0U);
      }
    }
  }
}

// For a latent cache: a key's first columns are its value.
template <KvFormat kFormatOfCache>
struct LatentTile {
  static constexpr KvFormat kFormat = kFormatOfCache;
  static constexpr bool kValuesInKeys = true;
  static constexpr int kMaxDim = kMaxLatentDim;
  static constexpr int kBytes = kMaxDim * kWideKeyRowBytes;
  static constexpr int kCodeBytes = kBytes / 2;

  // Copies numbers or codes, as one group of copies.
  BH_DEVICE static void Copy(const HeadCache& head, int token0, const CacheRange& range,
                             unsigned char* to) {
    if constexpr (KvElementBits(kFormat) <= 8) {
      CopyKeyCodes<kFormat>(head, token0, range, to);
    } else {
      CopyKeys<kMaxDim>(head, token0, range, to);
    }
    CpAsyncCommit();
  }
  BH_DEVICE static void Expand(const CacheParameters& cache, int /*token0*/,
                               const CacheRange& /*range*/, const unsigned char* codes,
                               unsigned char* tile) {
    ExpandKeyCodes<kFormat>(cache, codes, {}, tile);
  }

  // Values of 16 tokens, from 16 step on, and 16 dims, from dim + further on, transposed; further:
  // a multiple of 64.
  BH_DEVICE static void LoadValues(const unsigned char* tile, int dim, int further, int step,
                                   uint32_t (&a)[4]) {
    const int tile_of_lane = LaneIndex() / 8;
    LdMatrixX4(a, tile + KeyChunkAt(dim + further + tile_of_lane % 2 * 8 + LaneIndex() % 8,
                                    2 * step + tile_of_lane / 2));
  }
  BH_DEVICE static const float* ValueScales(const CacheParameters& cache) {
    return cache.key_scales;
  }
};

// For heads with keys and values of a multiple of 32 up to 512 numbers each. Values are
// [token][dims] after the keys, zero outside the range. Codes of keys are as in CopyKeyCodes; then
// come codes of values, [chunk][thread][16 bytes], and for int8 and int4 scales and zeros of keys,
// then of values [token].
template <KvFormat kFormatOfCache>
struct HeadTile {
  static constexpr KvFormat kFormat = kFormatOfCache;
  static constexpr bool kValuesInKeys = false;
  static constexpr int kMaxDim = kMaxHeadDim;
  static constexpr int kBits = KvElementBits(kFormat);
  static constexpr int kValueRowBytes = kMaxDim * 2;
  static constexpr int kValuesAt = kMaxDim * kWideKeyRowBytes;
  static constexpr int kBytes = 2 * kValuesAt;
  static constexpr int kValueCodesAt = kMaxDim * kWideTokens * kBits / 8;
  static constexpr int kScalingAt = 2 * kValueCodesAt;
  static constexpr int kCodeBytes = kScalingAt + (IsQuantized(kFormat) ? 4 * kWideTokens * 2 : 0);

  BH_DEVICE static void Copy(const HeadCache& head, int token0, const CacheRange& range,
                             unsigned char* to) {
    if constexpr (kBits <= 8) {
      CopyKeyCodes<kFormat>(head, token0, range, to);
    } else {
      CopyKeys<kMaxDim>(head, token0, range, to);
    }
    const CacheParameters& cache = *head.cache;
    const int row_bytes = cache.head_dim * kBits / 8;
    const int token = token0 + Token();
    const bool seen = IsIn(range, token);
    const unsigned char* const values =
        (seen ? head.Values(token) + int64_t{head.InBlock(token)} * row_bytes : cache.base) +
        FirstChunk() * 16;
    unsigned char* const at = to + (kBits <= 8 ? kValueCodesAt + int(threadIdx.x) * 16
                                               : ValueChunkAt(Token(), FirstChunk()));
    BH_UNROLL
    for (int i = 0; i < kChunks; ++i) {
      if (FirstChunk() * 16 + i * kStepBytes >= row_bytes) break;
      CpAsync16(at + i * (kBits <= 8 ? kWideThreads * 16 : kStepBytes), values + i * kStepBytes,
                seen);
    }
    if constexpr (IsQuantized(kFormat)) CopyScaling(head, token0, range, to + kScalingAt);
    CpAsyncCommit();
  }

  BH_DEVICE static void Expand(const CacheParameters& cache, int token0, const CacheRange& range,
                               const unsigned char* codes, unsigned char* tile) {
    ScalingOfEight of_keys[2] = {};
    ScalingOfEight of_value = {};
    if constexpr (IsQuantized(kFormat)) {
      const unsigned char* const scaling = codes + kScalingAt;
      BH_UNROLL
      for (int half = 0; half < 2; ++half) {
        const unsigned char* const from =
            scaling + (int(threadIdx.x) % kKeyCodeChunks * 2 + half) * 16;
        Take(LoadVector<Words4>(from), of_keys[half].scale);
        Take(LoadVector<Words4>(from + kWideTokens * 2), of_keys[half].zero);
      }
      // Outside the range weights are 0, and numbers must be finite.
      const bool seen = IsIn(range, token0 + Token());
      const unsigned char* const from = scaling + (2 * kWideTokens + Token()) * 2;
      Fill(seen, from, of_value.scale);
      Fill(seen, from + kWideTokens * 2, of_value.zero);
    }
    ExpandKeyCodes<kFormat>(cache, codes, of_keys, tile);
    // With 4 bits 16 bytes are the two halves of 32 columns (memory/kv_cache.h).
    constexpr int kParts = 8 / kBits;
    BH_UNROLL
    for (int i = 0; i < kChunks; ++i) {
      if (FirstChunk() * 16 + i * kStepBytes >= cache.head_dim * kBits / 8) break;
      const auto raw =
          LoadVector<Words4>(codes + kValueCodesAt + (i * kWideThreads + int(threadIdx.x)) * 16);
      BH_UNROLL
      for (int half = 0; half < 2; ++half) {
        BH_UNROLL
        for (int part = 0; part < kParts; ++part) {
          const Words4 numbers =
              EightNumbers<kFormat>({raw.w[2 * half], raw.w[2 * half + 1]}, part, of_value);
          StoreVector(tile + ValueChunkAt(Token(), (FirstChunk() * kParts + part) * 2 + half) +
                          i * kStepBytes * 16 / kBits,
                      numbers);
        }
      }
    }
  }

  BH_DEVICE static void LoadValues(const unsigned char* tile, int dim, int further, int step,
                                   uint32_t (&a)[4]) {
    const int tile_of_lane = LaneIndex() / 8;
    const unsigned char* const values =
        tile + ValueChunkAt(tile_of_lane / 2 * 8 + LaneIndex() % 8, dim / 8 + tile_of_lane % 2);
    LdMatrixX4Trans(a, values + further * 2 + 16 * step * kValueRowBytes);
  }
  BH_DEVICE static const float* ValueScales(const CacheParameters& cache) {
    return cache.value_scales;
  }

 private:
  BH_DEVICE static bool IsIn(const CacheRange& range, int token) {
    return token >= range.first && token < range.end;
  }
  BH_DEVICE static int ValueChunkAt(int token, int chunk) {
    return kValuesAt + SwizzledAt<kValueRowBytes>(token, chunk);
  }

  // A thread has 16-byte chunks of one token's cached value, kStepBytes apart. Eight lanes have
  // different tokens, whose rows are in different banks.
  static constexpr int kThreadsOfToken = kWideThreads / kWideTokens;
  static constexpr int kStepBytes = kThreadsOfToken * 16;
  static constexpr int kChunks = kMaxDim * kBits / 8 / kStepBytes;
  BH_DEVICE static int Token() { return WarpIndex() % (kWideTokens / 8) * 8 + LaneIndex() % 8; }
  BH_DEVICE static int FirstChunk() {
    return WarpIndex() / (kWideTokens / 8) * 4 + LaneIndex() / 8;
  }

  BH_DEVICE static void CopyScaling(const HeadCache& head, int token0, const CacheRange& range,
                                    unsigned char* to) {
    if (int(threadIdx.x) >= 4 * kKeyChunks) return;
    const CacheParameters& cache = *head.cache;
    const int token = token0 + int(threadIdx.x) % kKeyChunks * 8;
    const bool seen = token + 7 >= range.first && token < range.end;
    const int part = int(threadIdx.x) / kKeyChunks;
    const unsigned char* from = cache.base;
    if (seen) {
      from = head.Keys(token) + 2 * cache.keys_bytes +
             (part * cache.block_tokens + head.InBlock(token)) * 2;
    }
    CpAsync16(to + int(threadIdx.x) * 16, from, seen);
  }
};

}  // namespace bulkhead::cuda
