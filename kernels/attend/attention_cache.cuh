// Loads 64 tokens of the cache into shared memory as tiles of 16-bit numbers, for attention:
//   keys    [dims][token]   values  [token][dims]   rows have 16 bytes of padding, so that
//                                                   rows of a tile are in different banks
// Dims beyond the head's are zero up to a multiple of 16. int8 and int4 codes are stored less 128
// or 8, exact in bf16, with their scales and zeros: number = code * scale + zero; fp8 codes are
// stored as their values, also exact in bf16.
#pragma once

#include "intrinsics.h"
#include "kernels/attend/cuda_kernels.h"
#include "kernels/cuda/float_codes.cuh"

namespace bulkhead::cuda {

inline constexpr int kRowGapBytes = 16;
inline constexpr int kKeyRowBytes = kAttendTokens * 2 + kRowGapBytes;

template <int kDims>
struct CacheTileShape {
  static constexpr int kValueRowBytes = kDims * 2 + kRowGapBytes;
  static constexpr int kValuesAt = kDims * kKeyRowBytes;
  static constexpr int kScalingAt = kValuesAt + kAttendTokens * kValueRowBytes;
  static constexpr int kBytes = kScalingAt;                               // of a tile of numbers
  static constexpr int kQuantizedBytes = kBytes + 4 * kAttendTokens * 4;  // with scaling
};

// The tokens of the cache that a block works on: [first, end).
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
    return cache->base + blocks[token >> cache->block_shift] * cache->block_bytes + head_at;
  }
  BH_DEVICE const unsigned char* Values(int token) const { return Keys(token) + cache->keys_bytes; }
  BH_DEVICE int InBlock(int token) const { return token & (cache->block_tokens - 1); }
};

// Asynchronous copies of 16-bit numbers, as one group. A thread's keys are of the same tokens in
// every dim.
template <int kDims>
BH_DEVICE void CopyTile(const HeadCache& head, int token0, const CacheRange& range,
                        unsigned char* tile) {
  using Shape = CacheTileShape<kDims>;
  const unsigned char* const nowhere = head.cache->base;
  const int d = head.cache->head_dim;
  const int dims = (d + 15) / 16 * 16;
  constexpr int kTokenChunks = kAttendTokens / 8;
  constexpr int kDimsAtOnce = kAttendThreads / kTokenChunks;
  static_assert(kDimsAtOnce == 16);
  const int token = token0 + int(threadIdx.x) % kTokenChunks * 8;
  const bool seen = token + 7 >= range.first && token < range.end;
  const unsigned char* keys = seen ? head.Keys(token) + head.InBlock(token) * 2 : nowhere;
  const int64_t key_bytes = seen ? 2 * head.cache->block_tokens : 0;
  unsigned char* const to_keys = tile + int(threadIdx.x) % kTokenChunks * 16;
  BH_UNROLL
  for (int dim0 = 0; dim0 < kDims; dim0 += kDimsAtOnce) {
    if (dim0 >= dims) break;
    const int dim = dim0 + int(threadIdx.x) / kTokenChunks;
    const bool valid = seen && dim < d;
    CpAsync16(to_keys + dim * kKeyRowBytes, valid ? keys + dim * key_bytes : nowhere, valid);
  }
  // Four threads share a value, so that a thread finds only two addresses per tile.
  constexpr int kSharing = 4;
  constexpr int kTokensAtOnce = kAttendThreads / kSharing;
  BH_UNROLL
  for (int in_tile0 = 0; in_tile0 < kAttendTokens; in_tile0 += kTokensAtOnce) {
    const int in_tile = in_tile0 + int(threadIdx.x) / kSharing;
    const int of = token0 + in_tile;
    const bool is_there = of >= range.first && of < range.end;
    const unsigned char* const from =
        is_there ? head.Values(of) + int64_t{head.InBlock(of)} * d * 2 : nowhere;
    unsigned char* const to = tile + Shape::kValuesAt + in_tile * Shape::kValueRowBytes;
    BH_UNROLL
    for (int dim0 = 0; dim0 < kDims; dim0 += 8 * kSharing) {
      const int dim = dim0 + int(threadIdx.x) % kSharing * 8;
      if (dim >= dims) break;
      const bool valid = is_there && dim < d;
      CpAsync16(to + dim * 2, valid ? from + dim * 2 : nowhere, valid);
    }
  }
  CpAsyncCommit();
}

// The codes of two bytes of a word, from `first` on, as bf16. Subtracting from 2^23 + code is exact
// like a conversion, and four times as fast on a GPU.
template <KvFormat kFormat>
BH_DEVICE uint32_t CodePairAt(uint32_t codes, int first) {
  if constexpr (kFormat == KvFormat::kFP8) return E4m3PairAt(codes, first);
  constexpr int kBits = KvElementBits(kFormat);
  constexpr uint32_t kF32Of2To23 = 0x4B000000U;  // the low byte counts ones
  constexpr float kCentre = 8388608.0F + static_cast<float>(1 << (kBits - 1));
  const uint32_t low = __byte_perm(codes, kF32Of2To23, 0x7650U + static_cast<uint32_t>(first));
  const uint32_t high = __byte_perm(codes, kF32Of2To23, 0x7651U + static_cast<uint32_t>(first));
  return Bf16Pair(__uint_as_float(low) - kCentre, __uint_as_float(high) - kCentre);
}

// One code per byte: with 4 bits the low or the high one.
template <int kBits>
BH_DEVICE uint32_t CodesOfBytes(uint32_t word, int part) {
  return kBits == 8 ? word : word >> (4 * part) & 0x0F0F0F0FU;
}

BH_DEVICE void StoreWord(unsigned char* at, uint32_t word) {
  *reinterpret_cast<uint32_t*>(at) = word;
}

// Codes of values whose rows are not a multiple of 16 bytes, four bytes at a time.
template <int kDims, KvFormat kFormat>
BH_DEVICE void ExpandNarrowValues(const HeadCache& head, int token0, const CacheRange& range,
                                  unsigned char* values) {
  constexpr int kBits = KvElementBits(kFormat);
  constexpr int kWords = kDims * kBits / 32;
  constexpr int kRowBytes = CacheTileShape<kDims>::kValueRowBytes;
  const int d = head.cache->head_dim;
  const int row_bytes = d * kBits / 8;
  for (int i = int(threadIdx.x); i < kAttendTokens * kWords; i += kAttendThreads) {
    const int in_tile = i / kWords;
    const int byte = i % kWords * 4;
    if (byte >= row_bytes) continue;
    const int token = token0 + in_tile;
    uint32_t codes = 0;
    if (token >= range.first && token < range.end) {
      const int at = head.InBlock(token) * row_bytes + byte;
      codes = *reinterpret_cast<const uint32_t*>(head.Values(token) + at);
    }
    unsigned char* const row = values + in_tile * kRowBytes;
    if constexpr (kBits == 8) {
      StoreWord(row + byte * 2, CodePairAt<kFormat>(codes, 0));
      StoreWord(row + byte * 2 + 4, CodePairAt<kFormat>(codes, 2));
    } else {
      const int group = byte / 16 * 32;  // columns whose codes share bytes (memory/kv_cache.h)
      const int half = (d - group < 32 ? d - group : 32) / 2;
      unsigned char* to = row + (group + byte - group / 2) * 2;
      BH_UNROLL
      for (int part = 0; part < 2; ++part) {
        const uint32_t of_part = CodesOfBytes<4>(codes, part);
        StoreWord(to, CodePairAt<kFormat>(of_part, 0));
        StoreWord(to + 4, CodePairAt<kFormat>(of_part, 2));
        to += half * 2;
      }
    }
  }
}

// Stores 16 bytes of codes as numbers: with 8 bits 16 numbers at `to`; with 4 bits the low halves
// there and the high halves `apart` bytes later.
template <KvFormat kFormat>
BH_DEVICE void StoreNumbers(const Words4& codes, unsigned char* to, int apart) {
  constexpr int kBits = KvElementBits(kFormat);
  BH_UNROLL
  for (int part = 0; part < 8 / kBits; ++part) {
    BH_UNROLL
    for (int half = 0; half < 2; ++half) {
      Words4 numbers;
      BH_UNROLL
      for (int i = 0; i < 4; ++i) {
        const uint32_t of_part = CodesOfBytes<kBits>(codes.w[2 * half + i / 2], part);
        numbers.w[i] = CodePairAt<kFormat>(of_part, i % 2 * 2);
      }
      StoreVector(to + part * apart + half * 16, numbers);
    }
  }
}

// A thread's loads of a tile of codes: all are issued before any is used. Padded dims and values of
// tokens beyond the range become finite numbers, which are multiplied by queries or weights of 0;
// the scores of such tokens' keys are always masked.
template <int kDims, KvFormat kFormat>
class RawTile {
 public:
  BH_DEVICE void Load(const HeadCache& head, int token0, const CacheRange& range) {
    const CacheParameters& cache = *head.cache;
    const int d = cache.head_dim;
    {
      const int token = token0 + int(threadIdx.x) % kKeyChunks * 16;
      const bool seen = token + 15 >= range.first && token < range.end;
      const unsigned char* const keys = seen ? head.Keys(token) + head.InBlock(token) : cache.base;
      BH_UNROLL
      for (int i = 0; i < kKeyRounds; ++i) {
        const int row = i * kKeyRows + int(threadIdx.x) / kKeyChunks;
        keys_[i] = {};
        if (seen && row * kDimsOfByte < d) {
          keys_[i] = LoadVector<Words4>(keys + row * cache.block_tokens);
        }
      }
    }
    const int row_bytes = d * kBits / 8;
    const int byte = int(threadIdx.x) % kValueChunks * 16;
    BH_UNROLL
    for (int i = 0; i < kValueRounds; ++i) {
      const int token = token0 + i * kValueRows + int(threadIdx.x) / kValueChunks;
      values_[i] = {};
      if (row_bytes % 16 == 0 && byte < row_bytes && token >= range.first && token < range.end) {
        values_[i] =
            LoadVector<Words4>(head.Values(token) + head.InBlock(token) * row_bytes + byte);
      }
    }
    if constexpr (IsQuantized(kFormat)) LoadScaling(head, token0, range);
  }

  BH_DEVICE void Store(const HeadCache& head, int token0, const CacheRange& range,
                       unsigned char* tile) const {
    using Shape = CacheTileShape<kDims>;
    const int d = head.cache->head_dim;
    BH_UNROLL
    for (int i = 0; i < kKeyRounds; ++i) {
      const int row = i * kKeyRows + int(threadIdx.x) / kKeyChunks;
      if (row * kDimsOfByte >= (d + 15) / 16 * 16) break;
      StoreNumbers<kFormat>(
          keys_[i], tile + row * kDimsOfByte * kKeyRowBytes + int(threadIdx.x) % kKeyChunks * 32,
          kKeyRowBytes);
    }
    unsigned char* const values = tile + Shape::kValuesAt;
    const int row_bytes = d * kBits / 8;
    const int byte = int(threadIdx.x) % kValueChunks * 16;
    if (row_bytes % 16 != 0) {
      ExpandNarrowValues<kDims, kFormat>(head, token0, range, values);
    } else if (byte < row_bytes) {
      BH_UNROLL
      for (int i = 0; i < kValueRounds; ++i) {
        const int in_tile = i * kValueRows + int(threadIdx.x) / kValueChunks;
        // With 4 bits 16 bytes are the two halves of 32 columns (memory/kv_cache.h).
        StoreNumbers<kFormat>(
            values_[i], values + in_tile * Shape::kValueRowBytes + byte * kDimsOfByte * 2, 32);
      }
    }
    if constexpr (!IsQuantized(kFormat)) return;
    auto* const scaling = reinterpret_cast<float*>(tile + Shape::kScalingAt);
    const float scale = F32OfF16(scale_);
    scaling[ScalingAt()] = scale;
    scaling[ScalingAt() + kAttendTokens] =
        fmaf(static_cast<float>(1 << (kBits - 1)), scale, F32OfF16(zero_));
  }

 private:
  static constexpr int kBits = KvElementBits(kFormat);
  static constexpr int kDimsOfByte = 8 / kBits;
  static constexpr int kKeyChunks = kAttendTokens / 16;  // threads that share a row of keys
  static constexpr int kKeyRows = kAttendThreads / kKeyChunks;
  static constexpr int kKeyRounds = (kDims / kDimsOfByte + kKeyRows - 1) / kKeyRows;
  static constexpr int kValueChunks = kDims * kBits / 128;  // threads that share a value
  static constexpr int kValueRows = kAttendThreads / kValueChunks;
  static constexpr int kValueRounds = kAttendTokens / kValueRows;
  static_assert(kAttendThreads == 2 * kAttendTokens);

  // scaling [4][64]: scale and zero of keys, scale and zero of values, for centred codes; a thread
  // has those of one key or value, 0 if it is masked.
  BH_DEVICE static int ScalingAt() {
    return int(threadIdx.x) / kAttendTokens * 2 * kAttendTokens + int(threadIdx.x) % kAttendTokens;
  }
  BH_DEVICE void LoadScaling(const HeadCache& head, int token0, const CacheRange& range) {
    const int part = int(threadIdx.x) / kAttendTokens;  // keys, values
    const int token = token0 + int(threadIdx.x) % kAttendTokens;
    scale_ = 0;
    zero_ = 0;
    if (token >= range.first && token < range.end) {
      const int block_tokens = head.cache->block_tokens;
      const auto* const stored =
          reinterpret_cast<const uint16_t*>(head.Keys(token) + 2 * head.cache->keys_bytes) +
          2 * part * block_tokens + head.InBlock(token);
      scale_ = stored[0];
      zero_ = stored[block_tokens];
    }
  }

  Words4 keys_[kKeyRounds];
  Words4 values_[kValueRounds];
  uint16_t scale_ = 0;
  uint16_t zero_ = 0;
};

}  // namespace bulkhead::cuda
