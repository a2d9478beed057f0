// 32 tokens of a latent cache into shared memory as a tile of 16-bit numbers, for attention: [dims]
// [token]. The four chunks of 8 tokens of a row are turned, so that rows of a tile of the tensor
// cores lie in different banks; dims beyond the key's are zero up to a multiple of 32. Numbers of
// fp8 become bf16, exactly, on their way.
#pragma once

#include "intrinsics.h"
#include "kernels/attend/attention_cache.cuh"
#include "kernels/attend/cuda_kernels.h"

namespace bulkhead::cuda {

inline constexpr int kLatentChunks = kLatentTokens / 8;  // of 16 bytes, in a row of a tile

// Where a chunk of 8 tokens of a dim lies in a tile.
BH_DEVICE int LatentChunkAt(int dim, int chunk) {
  return (dim * kLatentChunks + (chunk ^ (dim / 2 % kLatentChunks))) * 16;
}

// Dims that products read.
BH_DEVICE int LatentDims(const CacheParameters& cache) { return (cache.head_dim + 31) / 32 * 32; }

// Numbers of 16 bits, copied aside; one group of copies. A thread's are of the same tokens in every
// dim.
BH_DEVICE void CopyLatents(const HeadCache& head, int token0, const CacheRange& range,
                           unsigned char* tile) {
  const CacheParameters& cache = *head.cache;
  const int dims = LatentDims(cache);
  const int chunk = int(threadIdx.x) % kLatentChunks;
  const int token = token0 + chunk * 8;
  const bool seen = token + 7 >= range.first && token < range.end;
  const unsigned char* const keys = seen ? head.Keys(token) + head.InBlock(token) * 2 : cache.base;
  const int64_t dim_bytes = seen ? 2 * cache.block_tokens : 0;
  constexpr int kDimsAtOnce = kLatentThreads / kLatentChunks;
  BH_UNROLL
  for (int dim0 = 0; dim0 < kMaxLatentDim; dim0 += kDimsAtOnce) {
    const int dim = dim0 + int(threadIdx.x) / kLatentChunks;
    if (dim >= dims) break;
    const bool valid = seen && dim < cache.head_dim;
    CpAsync16(tile + LatentChunkAt(dim, chunk), valid ? keys + dim * dim_bytes : cache.base, valid);
  }
  CpAsyncCommit();
}

// Codes of fp8 on their way, [dims][token]: copied aside, as numbers are, and then made a tile by
// the threads that copied them.
inline constexpr int kCodeChunks = kLatentTokens / 16;  // of 16 bytes, in a row

BH_DEVICE void CopyCodes(const HeadCache& head, int token0, const CacheRange& range,
                         unsigned char* codes) {
  const CacheParameters& cache = *head.cache;
  const int chunk = int(threadIdx.x) % kCodeChunks;
  const int token = token0 + chunk * 16;
  const bool seen = token + 15 >= range.first && token < range.end;
  const unsigned char* const keys = seen ? head.Keys(token) + head.InBlock(token) : cache.base;
  const int dims = LatentDims(cache);
  for (int dim = int(threadIdx.x) / kCodeChunks; dim < dims; dim += kLatentThreads / kCodeChunks) {
    const bool valid = seen && dim < cache.head_dim;
    CpAsync16(codes + (dim * kCodeChunks + chunk) * 16,
              valid ? keys + int64_t{dim} * cache.block_tokens : cache.base, valid);
  }
  CpAsyncCommit();
}

BH_DEVICE void ExpandCodes(const CacheParameters& cache, const unsigned char* codes,
                           unsigned char* tile) {
  const int chunk = int(threadIdx.x) % kCodeChunks;
  const int dims = LatentDims(cache);
  for (int dim = int(threadIdx.x) / kCodeChunks; dim < dims; dim += kLatentThreads / kCodeChunks) {
    const auto raw = LoadVector<Words4>(codes + (dim * kCodeChunks + chunk) * 16);
    BH_UNROLL
    for (int half = 0; half < 2; ++half) {
      Words4 numbers;
      BH_UNROLL
      for (int i = 0; i < 4; ++i) numbers.w[i] = E4m3PairAt(raw.w[2 * half + i / 2], i % 2 * 2);
      StoreVector(tile + LatentChunkAt(dim, 2 * chunk + half), numbers);
    }
  }
}

// Tokens beside the range in chunks that it cuts: what lies there may be no number, and as a value
// would be multiplied by a weight of 0.
BH_DEVICE void ClearUnseen(const CacheParameters& cache, int token0, const CacheRange& range,
                           unsigned char* tile) {
  for (int dim = int(threadIdx.x); dim < cache.head_dim; dim += kLatentThreads) {
    BH_UNROLL
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) {
      const int token = token0 + chunk * 8;
      if (token >= range.first && token + 8 <= range.end) continue;
      auto* const words = reinterpret_cast<uint32_t*>(tile + LatentChunkAt(dim, chunk));
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

}  // namespace bulkhead::cuda
