// Causal attention with keys of more than 256 numbers on the tensor cores: over a latent cache,
// where the first columns of a key are its value (LatentTile), and for heads of up to 512
// (HeadTile). A tile of 32 tokens is read once for all query heads of a block, its columns
// (attention_shape.cuh). A block's eight warps split the work in two ways, with the weights passed
// in shared memory:
//   scores^T [16 tokens][columns] = keys^T q^T      two warps for the tokens, four for the columns
//   out^T [16 dims][columns] += values^T p^T        each warp has every eighth tile of dims
// Shared memory holds two tiles, or one tile and two of codes (wide_cache.cuh), queries
// [column][dims], weights [column][token].
#pragma once

#include "intrinsics.h"
#include "kernels/attend/attend_blocks.cuh"
#include "kernels/attend/attention.cuh"
#include "kernels/attend/attention_cache.cuh"
#include "kernels/attend/attention_shape.cuh"
#include "kernels/attend/cuda_kernels.h"
#include "kernels/attend/options.cuh"
#include "kernels/attend/wide_cache.cuh"

namespace bulkhead::cuda {

template <typename Tile, int kTiles>
struct WideShape {
  static constexpr bool kInCodes = KvElementBits(Tile::kFormat) <= 8;
  static constexpr int kWarps = kWideThreads / kWarp;
  static constexpr int kColumns = kTiles * 8;
  static constexpr int kTokenGroups = kWideTokens / 16;
  static constexpr int kColumnGroups = kWarps / kTokenGroups;
  // Column tiles whose scores a warp computes; with few columns some warps have none.
  static constexpr int kWarpTiles = kTiles > kColumnGroups ? kTiles / kColumnGroups : 1;
  static constexpr int kDimTiles = kMaxLatentValueDim / 16 / kWarps;  // of a warp's sums
  static constexpr int kQueryRowBytes = Tile::kMaxDim * 2 + kRowGapBytes;
  static constexpr int kWeightRowBytes = kWideTokens * 2 + kRowGapBytes;
  static constexpr int kQueriesAt =
      kInCodes ? Tile::kBytes + 2 * Tile::kCodeBytes : 2 * Tile::kBytes;
  static constexpr int kWeightsAt = kQueriesAt + kColumns * kQueryRowBytes;
  static constexpr int kMaximaAt = kWeightsAt + kColumns * kWeightRowBytes;
  static constexpr int kShrinksAt = kMaximaAt + kTokenGroups * kColumns * 4;
  static constexpr int kBytes = kShrinksAt + kColumns * 4;
  // Blocks per multiprocessor if it has the shared memory.
  static constexpr int kSharing = kBytes <= 99 << 10 ? 2 : 1;
};

// One lane's data: for scores columns 2j and 2j + 1 of each tile of 8, j = lane % 4, and tokens
// lane / 4 and 8 more; for sums the same columns, of all tiles, and dims lane / 4 and 8 more.
template <typename Tile, int kTiles>
class WideLane {
  using Shape = WideShape<Tile, kTiles>;
  static constexpr KvFormat kNumbers = NumbersOf(Tile::kFormat);

 public:
  BH_DEVICE WideLane(const AttendParameters& p, const Columns& columns, int kv_head,
                     const CacheRange& range)
      : p_(p), columns_(columns), kv_head_(kv_head), range_(range) {
    BH_UNROLL
    for (int n = 0; n < Shape::kWarpTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int column = 8 * (FirstTile() + n) + LaneIndex() % 4 * 2 + i;
        last_[n][i] = column < columns.size() ? p.cache.position[columns.Token(column)] : -1;
        row_max_[n][i] = kMaskedScore;
      }
    }
  }

  // Stores rounded queries in shared memory; visible to all after the next __syncthreads.
  BH_DEVICE void StoreQueries() {
    StoreRounded<kNumbers, Shape::kColumns, Shape::kQueryRowBytes, kWideThreads>(
        p_, columns_, KeyDims(p_.cache) / 2, Queries());
  }

  // Adds one tile of the cache, tokens token0 .. token0 + 31.
  BH_DEVICE void Add(const unsigned char* tile, int token0) {
    float scores[Shape::kWarpTiles][4] = {};
    if (HasScores()) {
      Scores(tile, scores);
      ScaleAndMask(token0, scores);
      StoreMaxima(scores);
    }
    __syncthreads();  // the maxima of all tokens are visible
    if (HasScores()) StoreWeights(scores);
    __syncthreads();
    AddValues(tile);
  }

  // After all tiles: put(column, dim, sum of p v, max score, sum of p).
  template <typename Put>
  BH_DEVICE void Finish(const Put& put) {
    __syncthreads();  // no thread still reads what the sums overwrite
    if (HasScores()) StoreSums();
    __syncthreads();
    const float scale = ScaleIn(Tile::ValueScales(p_.cache));
    ForEachOut([&](int i, int n, int at, int column, int dim) {
      if (column >= columns_.size() || dim >= p_.out_dim) return;
      const float sum = Maxima()[column] + Maxima()[Shape::kColumns + column];
      put(column, dim, out_[i][n][at] * scale, Shrinks()[column], sum);
    });
  }

 private:
  static_assert(Shape::kTokenGroups == 2);

  // ---- this warp's scores
  BH_DEVICE static int FirstToken() { return WarpIndex() % Shape::kTokenGroups * 16; }
  BH_DEVICE static int FirstTile() { return WarpIndex() / Shape::kTokenGroups * Shape::kWarpTiles; }
  BH_DEVICE static bool HasScores() { return FirstTile() < kTiles; }

  BH_DEVICE static unsigned char* Queries() { return SharedMemory() + Shape::kQueriesAt; }
  BH_DEVICE static unsigned char* Weights() { return SharedMemory() + Shape::kWeightsAt; }
  // [group of tokens][column]; at the end the sums of weights replace them.
  BH_DEVICE static float* Maxima() {
    return reinterpret_cast<float*>(SharedMemory() + Shape::kMaximaAt);
  }
  // [column]; at the end the greatest score.
  BH_DEVICE static float* Shrinks() {
    return reinterpret_cast<float*>(SharedMemory() + Shape::kShrinksAt);
  }
  // The KV head's scale, if the cache is fp8.
  BH_DEVICE float ScaleIn(const float* scales) const {
    return Tile::kFormat == KvFormat::kFP8 && scales != nullptr ? scales[kv_head_] : 1.0F;
  }

  // Every other 16 dims have a separate sum, which halves the chain of products.
  BH_DEVICE void Scores(const unsigned char* tile, float (&scores)[Shape::kWarpTiles][4]) const {
    const int tile_of_lane = LaneIndex() / 8;
    const int dim_of_lane = tile_of_lane / 2 * 8 + LaneIndex() % 8;
    const unsigned char* const keys =
        tile + KeyChunkAt(dim_of_lane, FirstToken() / 8 + tile_of_lane % 2);
    const unsigned char* const queries =
        Queries() + (8 * FirstTile() + LaneIndex() % 8) * Shape::kQueryRowBytes + tile_of_lane * 16;
    float others[Shape::kWarpTiles][4] = {};
    const int dims = KeyDims(p_.cache);
    BH_UNROLL
    for (int dim = 0; dim < Tile::kMaxDim; dim += 32) {
      if (dim >= dims) break;
      uint32_t a[2][4];
      LdMatrixX4Trans(a[0], keys + dim * kWideKeyRowBytes);
      LdMatrixX4Trans(a[1], keys + (dim + 16) * kWideKeyRowBytes);
      BH_UNROLL
      for (int n = 0; n < Shape::kWarpTiles; ++n) {
        uint32_t r[4];
        LdMatrixX4(r, queries + 8 * n * Shape::kQueryRowBytes + dim * 2);
        MultiplyTiles<kNumbers>(scores[n], a[0], {r[0], r[1]});
        MultiplyTiles<kNumbers>(others[n], a[1], {r[2], r[3]});
      }
    }
    ForEachScore([&](int n, int i) { scores[n][i] += others[n][i]; });
  }

  // Converts to base 2.
  BH_DEVICE void ScaleAndMask(int token0, float (&scores)[Shape::kWarpTiles][4]) const {
    const float scale = p_.scale * kLog2OfE * ScaleIn(p_.cache.key_scales);
    ForEachScore([&](int n, int i) {
      float& score = scores[n][i];
      score *= scale;
      if (p_.soft_cap != 0.0F) score = Capped(p_, score);
      const int token = token0 + FirstToken() + LaneIndex() / 4 + i / 2 * 8;
      const int last = last_[n][i % 2];
      const bool seen = token >= range_.first && token < range_.end && token <= last &&
                        token >= FirstSeen(p_, last);
      if (!seen) score = kMaskedScore;
    });
  }

  BH_DEVICE void StoreMaxima(const float (&scores)[Shape::kWarpTiles][4]) const {
    ForEachColumn([&](int n, int i, int column) {
      float max = fmaxf(scores[n][i], scores[n][2 + i]);
      BH_UNROLL
      for (int mask = 4; mask < kWarp; mask *= 2) {
        max = fmaxf(max, __shfl_xor_sync(kFullMask, max, mask));
      }
      if (LaneIndex() < 4) {
        Maxima()[WarpIndex() % Shape::kTokenGroups * Shape::kColumns + column] = max;
      }
    });
  }

  // Turns scores into weights; the sums so far are rescaled to the new maximum.
  BH_DEVICE void StoreWeights(float (&scores)[Shape::kWarpTiles][4]) {
    ForEachColumn([&](int n, int i, int column) {
      const float max =
          fmaxf(row_max_[n][i], fmaxf(Maxima()[column], Maxima()[Shape::kColumns + column]));
      const float shrink = Exp2(row_max_[n][i] - max);
      row_max_[n][i] = max;
      sum_[n][i] *= shrink;
      if (LaneIndex() < 4 && FirstToken() == 0) Shrinks()[column] = shrink;
      // If a column has seen nothing yet its weights must be 0, not 2^0.
      const float base = max > kMaskedScore ? max : 0.0F;
      scores[n][i] = Exp2(scores[n][i] - base);
      scores[n][2 + i] = Exp2(scores[n][2 + i] - base);
      sum_[n][i] += scores[n][i];
      sum_[n][i] += scores[n][2 + i];
    });
    BH_UNROLL
    for (int n = 0; n < Shape::kWarpTiles; ++n) {
      unsigned char* const to = Weights() +
                                (8 * (FirstTile() + n) + LaneIndex() / 4) * Shape::kWeightRowBytes +
                                (FirstToken() + LaneIndex() % 4 * 2) * 2;
      StoreWord(to, MovMatrixTrans(PairOf<kNumbers>(scores[n][0], scores[n][1])));
      StoreWord(to + 16, MovMatrixTrans(PairOf<kNumbers>(scores[n][2], scores[n][3])));
    }
  }

  BH_DEVICE void StoreSums() {
    ForEachColumn([&](int n, int i, int column) {
      float sum = sum_[n][i];
      BH_UNROLL
      for (int mask = 4; mask < kWarp; mask *= 2) sum += __shfl_xor_sync(kFullMask, sum, mask);
      if (LaneIndex() >= 4) return;
      Maxima()[WarpIndex() % Shape::kTokenGroups * Shape::kColumns + column] = sum;
      if (FirstToken() == 0) Shrinks()[column] = row_max_[n][i];
    });
  }

  // ---- this warp's sums of values
  BH_DEVICE static int FirstDim(int i) { return (i * Shape::kWarps + WarpIndex()) * 16; }

  BH_DEVICE void AddValues(const unsigned char* tile) {
    ForEachOut([&](int i, int n, int at, int column, int) { out_[i][n][at] *= Shrinks()[column]; });
    const int tile_of_lane = LaneIndex() / 8;
    const unsigned char* const weights =
        Weights() + (tile_of_lane / 2 * 8 + LaneIndex() % 8) * Shape::kWeightRowBytes +
        tile_of_lane % 2 * 16;
    BH_UNROLL
    for (int step = 0; step < kWideTokens / 16; ++step) {
      uint32_t b[kTiles][2];
      BH_UNROLL
      for (int n = 0; n < kTiles; n += 2) {
        uint32_t r[4];
        LdMatrixX4(r, weights + 8 * n * Shape::kWeightRowBytes + 32 * step);
        b[n][0] = r[0];
        b[n][1] = r[1];
        b[n + 1][0] = r[2];
        b[n + 1][1] = r[3];
      }
      BH_UNROLL
      for (int i = 0; i < Shape::kDimTiles; ++i) {
        if (FirstDim(i) >= p_.out_dim) continue;
        uint32_t a[4];
        Tile::LoadValues(tile, FirstDim(0), FirstDim(i) - FirstDim(0), step, a);
        BH_UNROLL
        for (int n = 0; n < kTiles; ++n) MultiplyTiles<kNumbers>(out_[i][n], a, b[n]);
      }
    }
  }

  // ---- body(n, number) of a score, body(n, i, column), body(i, n, number, column, dim) of a sum
  template <typename Body>
  BH_DEVICE static void ForEachScore(const Body& body) {
    BH_UNROLL
    for (int n = 0; n < Shape::kWarpTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 4; ++i) body(n, i);
    }
  }
  template <typename Body>
  BH_DEVICE static void ForEachColumn(const Body& body) {
    BH_UNROLL
    for (int n = 0; n < Shape::kWarpTiles; ++n) {
      BH_UNROLL
      for (int i = 0; i < 2; ++i) body(n, i, 8 * (FirstTile() + n) + LaneIndex() % 4 * 2 + i);
    }
  }
  template <typename Body>
  BH_DEVICE static void ForEachOut(const Body& body) {
    BH_UNROLL
    for (int i = 0; i < Shape::kDimTiles; ++i) {
      BH_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        BH_UNROLL
        for (int at = 0; at < 4; ++at) {
          body(i, n, at, 8 * n + LaneIndex() % 4 * 2 + at % 2,
               FirstDim(i) + LaneIndex() / 4 + at / 2 * 8);
        }
      }
    }
  }

  const AttendParameters& p_;
  const Columns columns_;
  const int kv_head_;
  const CacheRange range_;
  int last_[Shape::kWarpTiles][2];
  float row_max_[Shape::kWarpTiles][2];
  float sum_[Shape::kWarpTiles][2] = {};
  float out_[Shape::kDimTiles][kTiles][4] = {};
};

// Columns attend to `range`; put as in ForSplitsOfBlock.
template <typename Tile, int kTiles, typename Put>
BH_DEVICE void AttendOverWide(const AttendParameters& p, const Columns& columns, int kv_head,
                              const CacheRange& range, const Put& put) {
  constexpr bool kInCodes = WideShape<Tile, kTiles>::kInCodes;
  const int64_t slot = p.cache.seq_slot[p.cache.token_seq[columns.token0]];
  const HeadCache head{&p.cache, p.cache.block_tables + slot * p.cache.block_table_stride,
                       kv_head * p.cache.head_bytes};
  const auto stage_at = [](int stage) {
    return SharedMemory() +
           (kInCodes ? Tile::kBytes + stage * Tile::kCodeBytes : stage * Tile::kBytes);
  };
  const int begin = range.first / kWideTokens * kWideTokens;
  WideLane<Tile, kTiles> lane(p, columns, kv_head, range);
  Tile::Copy(head, begin, range, stage_at(0));
  lane.StoreQueries();
  int stage = 0;
  for (int token0 = begin; token0 < range.end; token0 += kWideTokens) {
    CpAsyncWait<0>();
    __syncthreads();  // the tile has arrived, and all threads are done with the previous one
    const int next = token0 + kWideTokens;
    if (next < range.end) Tile::Copy(head, next, range, stage_at(1 - stage));
    unsigned char* const tile = kInCodes ? SharedMemory() : stage_at(stage);
    if constexpr (kInCodes) {
      Tile::Expand(p.cache, token0, range, stage_at(stage), tile);
      __syncthreads();
    }
    if (Tile::kValuesInKeys && (token0 < range.first || next > range.end)) {
      ClearUnseen(p.cache, token0, range, tile);
      __syncthreads();
    }
    lane.Add(tile, token0);
    stage = 1 - stage;
  }
  lane.Finish(put);
}

// Splits of sequences of one token or of several tokens.
template <typename Tile, int kTiles>
BH_KERNEL_SHARING(kWideThreads, (WideShape<Tile, kTiles>::kSharing))
WideDecode(AttendParameters p) {
  GridDependencySynchronize();
  ForSplitsOfBlock(
      p, [&](const Columns& columns, int kv_head, const CacheRange& range, const auto& put) {
        AttendOverWide<Tile, kTiles>(p, columns, kv_head, range, put);
      });
}

template <typename Tile, int kTiles>
BH_KERNEL(kWideThreads)
WidePrefill(AttendParameters p) {
  GridDependencySynchronize();
  ForTokensOfBlock(
      p, [&](const Columns& columns, int kv_head, const CacheRange& range, const auto& put) {
        AttendOverWide<Tile, kTiles>(p, columns, kv_head, range, put);
      });
}

template <typename Tile, int kTiles>
AttendLaunch WideLaunch(const char* name, AttendWork work) {
  using Shape = WideShape<Tile, kTiles>;
  if constexpr (kTiles != 4) {
    if (work == AttendWork::kPrefill) {
      return {KernelOf<kWideThreads>(name, WidePrefill<Tile, kTiles>), Shape::kBytes, 1,
              kWideThreads};
    }
  }
  return {KernelOf<kWideThreads>(name, WideDecode<Tile, kTiles>), Shape::kBytes, Shape::kSharing,
          kWideThreads};
}

}  // namespace bulkhead::cuda
