// 64 tokens of the cache into shared memory as tiles of 16-bit numbers, for attention:
//   keys    [dims][token]   values  [token][dims]   rows 16 bytes longer than they are full, so
//   that
//                                                   rows of a tile lie in different banks
// Dims beyond the head's are zero up to a multiple of 16. Codes arrive less 128 or 8, exact in
// bf16, with their scales and zeroes beside them:  number = code * scale + zero.
#pragma once

#include "kernels/cuda/kernels.h"
#include "words.h"

namespace bulkhead::cuda {

inline constexpr int kRowGapBytes = 16;
inline constexpr int kKeyRowBytes = kAttendTokens * 2 + kRowGapBytes;

template <int kDims>
struct CacheTileShape {
  static constexpr int kValueRowBytes = kDims * 2 + kRowGapBytes;
  static constexpr int kValuesAt = kDims * kKeyRowBytes;
  static constexpr int kScalingAt = kValuesAt + kAttendTokens * kValueRowBytes;
  static constexpr int kBytes = kScalingAt;                               // of a tile of numbers
  static constexpr int kQuantizedBytes = kBytes + 4 * kAttendTokens * 4;  // and with scaling
};

// Which tokens of the cache a block works on; what it sees lies in [first, end).
struct CacheRange {
  int first = 0;
  int end = 0;
};

// One KV head of one sequence.
struct HeadCache {
  const CacheParameters* cache = nullptr;
  const int32_t* blocks = nullptr;
  int64_t head_at = 0;

  BH_DEVICE const unsigned char* Keys(int token) const {
    return cache->base + blocks[token / cache->block_tokens] * cache->block_bytes + head_at;
  }
  BH_DEVICE const unsigned char* Values(int token) const { return Keys(token) + cache->keys_bytes; }
  BH_DEVICE int InBlock(int token) const { return token % cache->block_tokens; }
};

// Numbers of 16 bits, copied aside; one group of copies.
template <int kDims>
BH_DEVICE void CopyTile(const HeadCache& head, int token0, const CacheRange& range,
                        unsigned char* tile) {
  using Shape = CacheTileShape<kDims>;
  const int d = head.cache->head_dim;
  const int dims = (d + 15) / 16 * 16;
  constexpr int kTokenChunks = kAttendTokens / 8;
  for (int i = ThreadIndex(); i < dims * kTokenChunks; i += kAttendThreads) {
    const int dim = i / kTokenChunks;
    const int in_tile = i % kTokenChunks * 8;
    const int token = token0 + in_tile;
    const bool valid = dim < d && token + 7 >= range.first && token < range.end;
    const unsigned char* from = head.cache->base;
    if (valid) {
      const int64_t at = static_cast<int64_t>(dim) * head.cache->block_tokens + head.InBlock(token);
      from = head.Keys(token) + at * 2;
    }
    CopyAsync16(tile + dim * kKeyRowBytes + in_tile * 2, from, valid);
  }
  const int dim_chunks = dims / 8;
  for (int i = ThreadIndex(); i < kAttendTokens * dim_chunks; i += kAttendThreads) {
    const int in_tile = i / dim_chunks;
    const int dim = i % dim_chunks * 8;
    const int token = token0 + in_tile;
    const bool valid = dim < d && token >= range.first && token < range.end;
    const unsigned char* from = head.cache->base;
    if (valid)
      from = head.Values(token) + (static_cast<int64_t>(head.InBlock(token)) * d + dim) * 2;
    CopyAsync16(tile + Shape::kValuesAt + in_tile * Shape::kValueRowBytes + dim * 2, from, valid);
  }
  CommitCopies();
}

// Two codes, `shift` and `shift + step` bits into the word, as bf16.
template <int kBits>
BH_DEVICE uint32_t CodePairAt(uint32_t word, int shift, int step) {
  constexpr uint32_t kMask = (1U << kBits) - 1;
  constexpr float kCentre = static_cast<float>(1 << (kBits - 1));
  return Bf16Pair(static_cast<float>(word >> shift & kMask) - kCentre,
                  static_cast<float>(word >> (shift + step) & kMask) - kCentre);
}

BH_DEVICE void StoreWord(unsigned char* at, uint32_t word) {
  *reinterpret_cast<uint32_t*>(at) = word;
}

// Codes of keys: rows of tokens, a byte each; of 4 bits two dims in a byte.
template <int kBits>
BH_DEVICE void ExpandKeys(const HeadCache& head, int token0, const CacheRange& range,
                          unsigned char* tile) {
  const int d = head.cache->head_dim;
  constexpr int kDimsOfByte = 8 / kBits;
  constexpr int kChunks = kAttendTokens / 16;
  const int rows = (d + 15) / 16 * 16 / kDimsOfByte;
  for (int i = ThreadIndex(); i < rows * kChunks; i += kAttendThreads) {
    const int row = i / kChunks;
    const int in_tile = i % kChunks * 16;
    const int token = token0 + in_tile;
    const bool valid = row * kDimsOfByte < d && token + 15 >= range.first && token < range.end;
    Words4 codes = {};
    if (valid) {
      const int64_t at = static_cast<int64_t>(row) * head.cache->block_tokens + head.InBlock(token);
      codes = *reinterpret_cast<const Words4*>(head.Keys(token) + at);
    }
    BH_UNROLL
    for (int part = 0; part < kDimsOfByte; ++part) {
      unsigned char* const to = tile + (row * kDimsOfByte + part) * kKeyRowBytes + in_tile * 2;
      BH_UNROLL
      for (int w = 0; w < 4; ++w) {
        BH_UNROLL
        for (int pair = 0; pair < 2; ++pair) {
          const uint32_t numbers = CodePairAt<kBits>(codes.w[w], 16 * pair + part * kBits, 8);
          StoreWord(to + (4 * w + 2 * pair) * 2, valid ? numbers : 0);
        }
      }
    }
  }
}

// Codes of values: rows of dims, four bytes at a time.
template <int kBits, int kValueRowBytes>
BH_DEVICE void ExpandValues(const HeadCache& head, int token0, const CacheRange& range,
                            unsigned char* values) {
  const int d = head.cache->head_dim;
  const int words = d * kBits / 32;
  for (int i = ThreadIndex(); i < kAttendTokens * words; i += kAttendThreads) {
    const int in_tile = i / words;
    const int byte = i % words * 4;
    const int token = token0 + in_tile;
    uint32_t codes = 0;
    if (token >= range.first && token < range.end) {
      const int64_t at = static_cast<int64_t>(head.InBlock(token)) * words * 4 + byte;
      codes = *reinterpret_cast<const uint32_t*>(head.Values(token) + at);
    }
    unsigned char* const row = values + in_tile * kValueRowBytes;
    if constexpr (kBits == 8) {
      StoreWord(row + byte * 2, CodePairAt<8>(codes, 0, 8));
      StoreWord(row + byte * 2 + 4, CodePairAt<8>(codes, 16, 8));
    } else {
      const int group = byte / 16 * 32;  // columns whose codes share bytes (memory/kv_cache.h)
      const int half = (d - group < 32 ? d - group : 32) / 2;
      unsigned char* const low = row + (group + byte - group / 2) * 2;
      unsigned char* const high = low + half * 2;
      StoreWord(low, CodePairAt<4>(codes, 0, 8));
      StoreWord(low + 4, CodePairAt<4>(codes, 16, 8));
      StoreWord(high, CodePairAt<4>(codes, 4, 8));
      StoreWord(high + 4, CodePairAt<4>(codes, 20, 8));
    }
  }
}

// scaling [4][64]: of keys scale and zero, of values scale and zero, of centred codes; 0 for tokens
// that nobody sees.
template <int kBits>
BH_DEVICE void LoadScaling(const HeadCache& head, int token0, const CacheRange& range,
                           float* scaling) {
  const int block_tokens = head.cache->block_tokens;
  for (int i = ThreadIndex(); i < 2 * kAttendTokens; i += kAttendThreads) {
    const int part = i / kAttendTokens;  // keys, values
    const int token = token0 + i % kAttendTokens;
    float scale = 0.0F;
    float zero = 0.0F;
    if (token >= range.first && token < range.end) {
      const auto* const stored =
          reinterpret_cast<const uint16_t*>(head.Keys(token) + 2 * head.cache->keys_bytes) +
          2 * part * block_tokens + head.InBlock(token);
      scale = F32OfF16(stored[0]);
      zero = fmaf(static_cast<float>(1 << (kBits - 1)), scale, F32OfF16(stored[block_tokens]));
    }
    scaling[2 * part * kAttendTokens + i % kAttendTokens] = scale;
    scaling[(2 * part + 1) * kAttendTokens + i % kAttendTokens] = zero;
  }
}

template <int kDims, int kBits>
BH_DEVICE void ExpandTile(const HeadCache& head, int token0, const CacheRange& range,
                          unsigned char* tile) {
  using Shape = CacheTileShape<kDims>;
  ExpandKeys<kBits>(head, token0, range, tile);
  ExpandValues<kBits, Shape::kValueRowBytes>(head, token0, range, tile + Shape::kValuesAt);
  LoadScaling<kBits>(head, token0, range, reinterpret_cast<float*>(tile + Shape::kScalingAt));
}

}  // namespace bulkhead::cuda
