// The work of a block of AttendDecode.
#pragma once

#include "kernels/attend/decode.cuh"

namespace bulkhead::cuda {

// Adds the warps' sums of the block's columns, times value_scale: to `parts`, or to `out` if the
// split is the only one. Each warp takes different columns.
template <typename Shape>
BH_DEVICE void MergeSums(const AttendParameters& p, const DecodeWork& work, const Columns& columns,
                         float value_scale, const unsigned char* stage) {
  constexpr int kOfWarp = Shape::kWarpBytes / 4;
  const auto* const sums = reinterpret_cast<const float*>(stage);
  for (int column = WarpIndex(); column < columns.heads; column += kAttendWarps) {
    const int head = columns.head0 + column;
    Floats4 of[kAttendWarps];
    float max = kMaskedScore;
    BH_UNROLL
    for (int w = 0; w < kAttendWarps; ++w) {
      of[w] = LoadFour(sums + w * kOfWarp + Shape::kColumns * Shape::kSumsRow + 4 * column);
      max = fmaxf(max, of[w].v[0]);
    }
    float sum = 0.0F;
    float zero = 0.0F;
    BH_UNROLL
    for (int w = 0; w < kAttendWarps; ++w) {
      of[w].v[0] = Exp2(of[w].v[0] - max);
      sum = fmaf(of[w].v[0], of[w].v[1], sum);
      zero = fmaf(of[w].v[0], of[w].v[2], zero);
    }
    float outs[Shape::kDims / kWarp];
    BH_UNROLL
    for (int i = 0; i < Shape::kDims / kWarp; ++i) {
      const int dim = i * kWarp + LaneIndex();
      outs[i] = zero;
      if (dim >= p.out_dim) continue;
      BH_UNROLL
      for (int w = 0; w < kAttendWarps; ++w) {
        outs[i] = fmaf(of[w].v[0], sums[w * kOfWarp + column * Shape::kSumsRow + dim], outs[i]);
      }
      outs[i] *= value_scale;
    }
    const int64_t at = static_cast<int64_t>(work.row) * p.num_heads + head;
    if (!work.is_only_split && LaneIndex() == 0) {
      p.part_sums[2 * at] = max;
      p.part_sums[2 * at + 1] = sum;
    }
    const float shrink = work.is_only_split ? AddSink(p, head, max, sum) : 1.0F;
    BH_UNROLL
    for (int i = 0; i < Shape::kDims / kWarp; ++i) {
      const int dim = i * kWarp + LaneIndex();
      if (dim >= p.out_dim) break;
      if (!work.is_only_split) {
        p.parts[at * p.out_dim + dim] = outs[i];
      } else {
        StoreOut(p.out, work.token * p.out.stride + static_cast<int64_t>(head) * p.out_dim + dim,
                 outs[i] * shrink / sum);
      }
    }
  }
}

template <KvFormat kFormat, typename Shape, int kStages>
BH_DEVICE void DecodeItems(const AttendParameters& p) {
  const int kv_head = int(blockIdx.y) / p.head_tiles;
  const Columns columns = HeadsOfBlock(p, int(blockIdx.y));
  ItemsOfBlock items(p);
  DecodeCopies<Shape> copies(p, kv_head * p.cache.head_bytes, items);
  GridDependencySynchronize();
  if (columns.heads <= 0) return;
  unsigned char* const of_warp = SharedMemory() + WarpIndex() * Shape::kWarpBytes;
  BH_NO_UNROLL
  for (int i = 0; i < kStages; ++i) copies.Copy(of_warp + i * Shape::kStageBytes);
  DecodeLane<kFormat, Shape> lane(p, kv_head);
  float value_scale = 1.0F;
  if constexpr (kFormat == KvFormat::kFP8) {
    if (p.cache.value_scales != nullptr) value_scale = p.cache.value_scales[kv_head];
  }
  constexpr int kOfWarp = Shape::kTokens / kAttendWarps;
  int stage = 0;
  DecodeWork work;
  bool has_queries = true;
  for (int item = items.begin; item < items.end; ++item) {
    has_queries = !work.Find(p, item) && has_queries;
    if (work.range.first >= work.range.end) continue;
    if (!has_queries) lane.LoadQueries(work.token, columns);
    has_queries = true;
    lane.Begin();
    for (int token0 = work.begin(); token0 < work.range.end; token0 += Shape::kTokens) {
      CpAsyncWait<kStages - 1>();
      __syncwarp();
      unsigned char* const tile = of_warp + stage * Shape::kStageBytes;
      lane.Add(tile, token0 + WarpIndex() * kOfWarp, work.range);
      __syncwarp();
      if (token0 + Shape::kTokens >= work.range.end) {
        lane.StoreSums(tile);
        __syncthreads();
        MergeSums<Shape>(p, work, columns, value_scale,
                         SharedMemory() + stage * Shape::kStageBytes);
        __syncthreads();
      }
      copies.Copy(tile);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
  }
  CpAsyncWait<0>();
}

}  // namespace bulkhead::cuda
