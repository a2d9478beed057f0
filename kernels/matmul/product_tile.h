// One tile of a product in registers: up to kTileRows rows by kTileVectors vectors of a panel, over
// one range of K. Compiled per instruction set; included only by simd.cc files.
#pragma once

#include "kernels/matmul/op.h"
#include "kernels/matmul/panel_tree.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

struct Tile {
  const float* x;  // packed: [count][rows]; in place: rows `x_stride` apart; in pairs: their words
  int64_t x_stride;
  const char* weight;  // at the first k of the range, the panel's first column
  int64_t count;       // k's in the range
  const float*
      start;  // running values to continue from, rows `start_stride` apart; null: from `fresh`
  int64_t start_stride;
  float fresh;  // +0, the head of a chain; or -0, an empty slice
  float* dest;  // rows `dest_stride` apart
  int64_t dest_stride;
  int columns;        // existing ones of the panel; the others are neither read nor written
  const float* left;  // [num_joins][rows][32] finished left subtrees to add, the smallest first
  int num_joins;
  Ahead ahead;
};

// Number kNumber of kNumbers adjacent k's, of vector kVector of the panel.
struct F32Panel {
  static constexpr int64_t kStepBytes = 128;  // of one k
  static constexpr int kNumbers = 1;
  template <int kVector, int kNumber>
  BH_INLINE static F32x16 Column(const char* w) {
    return Load(reinterpret_cast<const float*>(w) + kVector * kLanes);
  }
};

struct F16Panel {
  static constexpr int64_t kStepBytes = 64;
  static constexpr int kNumbers = 1;
  template <int kVector, int kNumber>
  BH_INLINE static F32x16 Column(const char* w) {
    return LoadF16(reinterpret_cast<const uint16_t*>(w) + kVector * kLanes);
  }
};

struct Bf16Panel {
  static constexpr int64_t kStepBytes = 64;
  static constexpr int kNumbers = 2;
  template <int kVector, int kNumber>
  BH_INLINE static F32x16 Column(const char* w) {
    const uint32_t* pairs = reinterpret_cast<const uint32_t*>(w) + kVector * kLanes;
    if constexpr (kNumber == 0) return LoadBf16Low(pairs);
    return LoadBf16High(pairs);
  }
};

// The same weights with bf16 inputs: two k's at a time.
struct Bf16Pairs {
  static constexpr int64_t kStepBytes = Bf16Panel::kStepBytes;
};

template <typename A, typename B>
inline constexpr bool kAreSame = false;
template <typename A>
inline constexpr bool kAreSame<A, A> = true;

template <int kRows, int kVectors>
using Sums = F32x16[kRows][kVectors];

template <int kRows, int kFirst, int kVectors>
BH_INLINE void StartSums(const Tile& tile, Sums<kRows, kVectors>& sums) {
  if (tile.start == nullptr) {
    const F32x16 fresh = Set1(tile.fresh);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fresh;
    }
    return;
  }
  const int lanes[2] = {LanesFrom(tile.columns, kFirst), LanesFrom(tile.columns, kFirst + 1)};
  const float* row = tile.start + kFirst * kLanes;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[r][v] = LoadN(row + v * kLanes, lanes[v]);
    row += tile.start_stride;
  }
}

// left + right, for each finished subtree on the left.
template <int kRows, int kFirst, int kVectors>
BH_INLINE void JoinSums(const Tile& tile, Sums<kRows, kVectors>& sums) {
  const float* left = tile.left + kFirst * kLanes;
  for (int join = 0; join < tile.num_joins; ++join) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Add(Load(left + v * kLanes), sums[r][v]);
      left += kPanelColumns;
    }
  }
}

template <int kRows, int kFirst, int kVectors>
BH_INLINE void StoreSums(const Tile& tile, const Sums<kRows, kVectors>& sums) {
  const int lanes[2] = {LanesFrom(tile.columns, kFirst), LanesFrom(tile.columns, kFirst + 1)};
  float* row = tile.dest + kFirst * kLanes;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) StoreN(row + v * kLanes, sums[r][v], lanes[v]);
    row += tile.dest_stride;
  }
}

// Prefetches what is stored when the tile is done: rows of `dest` may be pages apart.
template <int kRows, int kFirst, int kVectors>
BH_INLINE void PrefetchDest(const Tile& tile) {
  const float* row = tile.dest + kFirst * kLanes;
  for (int r = 0; r < kRows; ++r, row += tile.dest_stride) {
    for (int v = 0; v < kVectors; ++v) Prefetch(row + v * kLanes);
  }
}

// Few rows continue at once, into L1; many reach the next panel much later.
template <int64_t kBytes, bool kIsForLater>
BH_INLINE void PrefetchStep(const char* p) {
  for (int64_t at = 0; at < kBytes; at += 64) {
    if constexpr (kIsForLater) {
      PrefetchLater(p + at);
    } else {
      Prefetch(p + at);
    }
  }
}

// The missing half of a last pair is 0 in both.
template <bool kPackedX, int kRows, int kFirst, int kVectors>
BH_INLINE void AddPairs(const Tile& tile, Ahead ahead, Sums<kRows, kVectors>& sums) {
  const int64_t row_stride = kPackedX ? 1 : tile.x_stride;
  constexpr int64_t kWordStride = kPackedX ? kRows : 1;
  const float* x = tile.x;
  InterleavedPairs<kVectors> pairs;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) pairs.at[v] = tile.weight + (kFirst + v) * kPairBytes / 2;
  for (int64_t k = 0; k < tile.count; k += 2) {
    AddPair(x, row_stride, kWordStride, pairs, sums);
    PrefetchStep<2 * Bf16Pairs::kStepBytes, kPackedX>(ahead.at);
    x += kWordsPerPair * kWordStride;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) pairs.at[v] += kPairBytes;
    ahead.at += 2 * ahead.step;
  }
}

template <bool kPackedX, int kRows, int kFirst, int kVectors>
void RunPairs(const Tile& tile, Ahead ahead) {
  Sums<kRows, kVectors> sums;
  StartSums<kRows, kFirst, kVectors>(tile, sums);
  if constexpr (kPackedX) PrefetchDest<kRows, kFirst, kVectors>(tile);
  // Joins use the same mode as all other sums.
  InFlushMode(sums, [&]() { AddPairs<kPackedX, kRows, kFirst, kVectors>(tile, ahead, sums); });
  JoinSums<kRows, kFirst, kVectors>(tile, sums);
  StoreSums<kRows, kFirst, kVectors>(tile, sums);
}

// One k of a panel and of the rows at `x`.
template <typename Panel, int kNumber, int kRows, int kFirst, int kVectors>
BH_INLINE void AddInput(const float* x, int64_t x_stride, const char* w,
                        Sums<kRows, kVectors>& sums) {
  F32x16 column[2];
  column[0] = Panel::template Column<kFirst, kNumber>(w);
  if constexpr (kVectors == 2) column[1] = Panel::template Column<kFirst + 1, kNumber>(w);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const F32x16 input = Set1(x[r * x_stride]);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Fma(input, column[v], sums[r][v]);
  }
}

// Vectors [kFirst, kFirst + kVectors) of the panel.
template <typename Panel, bool kPackedX, int kRows, int kFirst, int kVectors>
void RunTile(const Tile& tile, Ahead ahead) {
  constexpr int kNumbers = Panel::kNumbers;
  Sums<kRows, kVectors> sums;
  StartSums<kRows, kFirst, kVectors>(tile, sums);
  if constexpr (kPackedX) PrefetchDest<kRows, kFirst, kVectors>(tile);
  const float* x = tile.x;
  const char* w = tile.weight;
  const int64_t row_stride = kPackedX ? 1 : tile.x_stride;
  constexpr int64_t kInputStride = kPackedX ? kRows : 1;
#pragma GCC unroll 2
  for (int64_t k = 0; k < tile.count / kNumbers; ++k) {
    AddInput<Panel, 0, kRows, kFirst, kVectors>(x, row_stride, w, sums);
    if constexpr (kNumbers == 2) {
      AddInput<Panel, 1, kRows, kFirst, kVectors>(x + kInputStride, row_stride, w, sums);
    }
    PrefetchStep<kNumbers * Panel::kStepBytes, kPackedX>(ahead.at);
    x += kNumbers * kInputStride;
    w += kNumbers * Panel::kStepBytes;
    ahead.at += kNumbers * ahead.step;
  }
  if (tile.count % kNumbers != 0) {
    AddInput<Panel, 0, kRows, kFirst, kVectors>(x, row_stride, w, sums);
  }
  JoinSums<kRows, kFirst, kVectors>(tile, sums);
  StoreSums<kRows, kFirst, kVectors>(tile, sums);
}

template <typename Panel, bool kPackedX, int kRows, int kFirst, int kVectors>
BH_INLINE void RunVectors(const Tile& tile, Ahead ahead) {
  if constexpr (kAreSame<Panel, Bf16Pairs>) {
    RunPairs<kPackedX, kRows, kFirst, kVectors>(tile, ahead);
  } else {
    RunTile<Panel, kPackedX, kRows, kFirst, kVectors>(tile, ahead);
  }
}

// A whole panel: at once if the registers hold it, else its halves one after the other.
template <typename Panel, bool kPackedX, int kRows>
void RunPanel(const Tile& tile) {
  if constexpr (kTileVectors == 2 || kRows <= 2) {
    RunVectors<Panel, kPackedX, kRows, 0, 2>(tile, tile.ahead);
  } else {
    Ahead half{tile.ahead.at, tile.ahead.step / 2};
    RunVectors<Panel, kPackedX, kRows, 0, 1>(tile, half);
    half.at += half.step * tile.count;
    if (tile.columns > kLanes) RunVectors<Panel, kPackedX, kRows, 1, 1>(tile, half);
  }
}

using RunTileFunction = void (*)(const Tile& tile);

// table[rows - 1]
template <typename Panel, bool kPackedX, int kRows>
constexpr void FillTable(RunTileFunction* table) {
  table[kRows - 1] = &RunPanel<Panel, kPackedX, kRows>;
  if constexpr (kRows > 1) FillTable<Panel, kPackedX, kRows - 1>(table);
}

}  // namespace bulkhead::BH_ISA
