// The attention kernels (cuda_kernels.h) for one cache format; one .cu file per format, because
// there are many shapes.
#pragma once

#include "kernels/attend/attend_blocks.cuh"
#include "kernels/attend/attention.cuh"
#include "kernels/attend/decode_block.cuh"
#include "kernels/attend/wide.cuh"
#include "kernels/cuda/registered_kernels.h"

namespace bulkhead::cuda {

// Columns attend to `range`; put() as in AttendLane::Merge.
template <KvFormat kFormat, int kDimTiles, int kTiles, typename Put>
BH_DEVICE void AttendOver(const AttendParameters& p, const Columns& columns, int kv_head,
                          const CacheRange& range, const Put& put) {
  using Shape = AttendShape<kFormat, kDimTiles, kTiles>;
  unsigned char* const tiles = SharedMemory() + Shape::kTilesAt;
  const int64_t slot = p.cache.seq_slot[p.cache.token_seq[columns.token0]];
  const HeadCache head{&p.cache, p.cache.block_tables + slot * p.cache.block_table_stride,
                       kv_head * p.cache.head_bytes};
  const int begin = range.first / kAttendTokens * kAttendTokens;
  AttendLane<kFormat, kDimTiles, kTiles> lane(p, columns, kv_head, SharedMemory());
  if constexpr (Shape::kInCodes) {
    RawTile<Shape::kDims, kFormat> raw;
    lane.LoadQueries();
    for (int token0 = begin; token0 < range.end; token0 += kAttendTokens) {
      raw.Load(head, token0, range);
      __syncthreads();  // all threads are done with the previous tile
      raw.Store(head, token0, range, tiles);
      __syncthreads();
      lane.Add(tiles, token0, range);
    }
  } else {
    CopyTile<Shape::kDims>(head, begin, range, tiles);
    lane.LoadQueries();
    int stage = 0;
    for (int token0 = begin; token0 < range.end; token0 += kAttendTokens) {
      CpAsyncWait<0>();
      __syncthreads();  // the tile has arrived, and all threads are done with the previous one
      const int next = token0 + kAttendTokens;
      if (next < range.end) {
        CopyTile<Shape::kDims>(head, next, range, tiles + (1 - stage) * Shape::kTileBytes);
      }
      lane.Add(tiles + stage * Shape::kTileBytes, token0, range);
      stage = 1 - stage;
    }
  }
  lane.Merge(put);
}

// For AttendDecode: parts of 16 tokens that a warp takes at once, tiles in shared memory, blocks
// per multiprocessor.
template <KvFormat kFormat, int kDimTiles, int kTiles>
struct DecodeCuts {
  static constexpr bool kInCodes = KvElementBits(kFormat) <= 8;
  static constexpr int kParts = kInCodes && kDimTiles <= 8 ? 2 : 1;
  static constexpr int kStages = 2;
  static constexpr int kBlocks = kDimTiles * kTiles > 8 ? 2 : 3;
  using Shape = DecodeShape<kFormat, kDimTiles, kTiles, kParts, kStages>;
};

template <KvFormat kFormat, int kDimTiles, int kTiles>
BH_KERNEL_SHARING(kAttendThreads, (DecodeCuts<kFormat, kDimTiles, kTiles>::kBlocks))
AttendDecode(AttendParameters p) {
  using Cuts = DecodeCuts<kFormat, kDimTiles, kTiles>;
  DecodeItems<kFormat, typename Cuts::Shape, Cuts::kStages>(p);
}

template <KvFormat kFormat, int kDimTiles, int kTiles>
BH_KERNEL(kAttendThreads)
AttendPrefill(AttendParameters p) {
  GridDependencySynchronize();
  ForTokensOfBlock(
      p, [&](const Columns& columns, int kv_head, const CacheRange& range, const auto& put) {
        AttendOver<kFormat, kDimTiles, kTiles>(p, columns, kv_head, range, put);
      });
}

// Splits of sequences of several tokens, one per block.
template <KvFormat kFormat, int kDimTiles, int kTiles>
BH_KERNEL(kAttendThreads)
AttendSplitPrefill(AttendParameters p) {
  GridDependencySynchronize();
  ForSplit(p, int(blockIdx.x),
           [&](const Columns& columns, int kv_head, const CacheRange& range, const auto& put) {
             AttendOver<kFormat, kDimTiles, kTiles>(p, columns, kv_head, range, put);
           });
}

template <KvFormat kFormat, int kDimTiles, int kTiles>
AttendLaunch DecodeLaunch(const char* name) {
  return {KernelOf<kAttendThreads>(name, AttendDecode<kFormat, kDimTiles, kTiles>),
          DecodeCuts<kFormat, kDimTiles, kTiles>::Shape::kBytes,
          DecodeCuts<kFormat, kDimTiles, kTiles>::kBlocks};
}

template <KvFormat kFormat, int kDimTiles, int kTiles>
AttendLaunch PrefillLaunch(const char* name, AttendWork work) {
  return {work == AttendWork::kSplitPrefill
              ? KernelOf<kAttendThreads>(name, AttendSplitPrefill<kFormat, kDimTiles, kTiles>)
              : KernelOf<kAttendThreads>(name, AttendPrefill<kFormat, kDimTiles, kTiles>),
          AttendShape<kFormat, kDimTiles, kTiles>::kBytes, 1};
}

template <KvFormat kFormat>
AttendLaunch AttendLaunchFor(const char* name, int head_dim, int column_tiles, AttendWork work) {
  constexpr int kTiles = PrefillColumnTiles(kFormat);
  static_assert(KvElementBits(kFormat) <= 8 ||
                AttendShape<kFormat, 16, 1>::kBytes == k16BitSharedBytes);
  static_assert(WideShape<HeadTile<kFormat>, 2>::kBytes <= kWideHeadSharedBytes);
  const bool decode = work == AttendWork::kDecode;
  if (head_dim > kMaxNarrowHeadDim) {
    return column_tiles == 2 ? WideLaunch<HeadTile<kFormat>, 2>(name, work)
                             : WideLaunch<HeadTile<kFormat>, 8>(name, work);
  }
  if (head_dim > 128) {
    return decode ? DecodeLaunch<kFormat, 16, 1>(name) : PrefillLaunch<kFormat, 16, 1>(name, work);
  }
  if (!decode) {
    if (head_dim <= 64) return PrefillLaunch<kFormat, 4, kTiles>(name, work);
    return column_tiles == 2 ? PrefillLaunch<kFormat, 8, 2>(name, work)
                             : PrefillLaunch<kFormat, 8, kTiles>(name, work);
  }
  if (column_tiles == 1) {
    return head_dim > 64 ? DecodeLaunch<kFormat, 8, 1>(name) : DecodeLaunch<kFormat, 4, 1>(name);
  }
  return head_dim > 64 ? DecodeLaunch<kFormat, 8, 2>(name) : DecodeLaunch<kFormat, 4, 2>(name);
}

// One kernel of each existing kind.
inline std::vector<CudaKernel> AllOf(AttendLaunch (*launch_for)(int head_dim, int column_tiles,
                                                                AttendWork work)) {
  std::vector<CudaKernel> kernels;
  for (const int head_dim : {64, 128, 256, 512}) {
    for (const int column_tiles : {head_dim == 512 ? 8 : 1, 2}) {
      for (const AttendWork work :
           {AttendWork::kDecode, AttendWork::kSplitPrefill, AttendWork::kPrefill}) {
        kernels.push_back(launch_for(head_dim, column_tiles, work).kernel.kernel);
      }
    }
  }
  return kernels;
}

}  // namespace bulkhead::cuda
