// The cache as read by AttendDecode: each warp copies its own tokens of a tile to shared memory, in
// the cache's format and several tiles ahead, including those of the block's next items. A part is
// 16 tokens:
//   keys    [d][16 tokens], of int4 [d / 2]    values   [16 tokens][d]    scaling   [4][16]
// Rows are padded to kDims dims, more than is read, with zeros. If eight rows would be in the same
// banks, their 16-byte chunks are swizzled (SwizzledAt).
#pragma once

#include "intrinsics.h"
#include "kernels/attend/attend_blocks.cuh"
#include "kernels/attend/attention_cache.cuh"
#include "kernels/attend/cuda_kernels.h"
#include "kernels/attend/options.cuh"
#include "kernels/cuda/float_codes.cuh"

namespace bulkhead::cuda {

inline constexpr int kPartTokens = 16;

// kParts: taken by a warp at once; kStages: tiles in shared memory or being copied.
template <KvFormat kFormat, int kDimTiles, int kTiles, int kParts, int kStages>
struct DecodeShape {
  static constexpr int kBits = KvElementBits(kFormat);
  static constexpr bool kQuantized = IsQuantized(kFormat);
  static constexpr int kDims = kDimTiles * 16;
  static constexpr int kColumns = kTiles * 8;
  static constexpr int kTokens = kAttendWarps * kParts * kPartTokens;  // tokens of the block's tile
  static constexpr int kKeyRows = kBits == 4 ? kDims / 2 : kDims;
  static constexpr int kKeyRowBytes = kPartTokens * (kBits == 16 ? 2 : 1);
  static constexpr int kValueRowBytes = kDims * kBits / 8;
  static constexpr int kValuesAt = kKeyRows * kKeyRowBytes;
  static constexpr int kScalingAt = kValuesAt + kPartTokens * kValueRowBytes;
  static constexpr int kPartBytes = kScalingAt + (kQuantized ? 4 * kPartTokens * 2 : 0);
  // A warp's sums reuse the space of its tile: [column][dim], then [column] {greatest score, sum of
  // p, sum of p zero, unused}. Padding keeps the columns of a tile in different banks.
  static constexpr int kSumsRow = kDims + 4;
  static constexpr int kMergeBytes = kColumns * (kSumsRow + 4) * 4;
  static constexpr int kStageBytes =
      kParts * kPartBytes > kMergeBytes ? kParts* kPartBytes : kMergeBytes;
  static constexpr int kWarpBytes = kStages * kStageBytes;
  static constexpr int kBytes = kAttendWarps * kWarpBytes;
};

// The offset of chunk `chunk` in a row of kRowBytes, a power of two.
template <int kRowBytes>
BH_DEVICE int SwizzledAt(int row, int chunk) {
  constexpr int kRowsOfLine = kRowBytes < 128 ? 128 / kRowBytes : 1;
  constexpr int kChunks = kRowBytes < 128 ? kRowBytes / 16 : 8;
  return row * kRowBytes + ((chunk ^ (row / kRowsOfLine % kChunks)) << 4);
}

// A token's row in a part's values. Codes of tokens 2i and 2i + 1 become rows i and i + 8 of a tile
// of scores (decode.cuh).
template <int kBits>
BH_DEVICE int ValueRowOf(int in_part) {
  return kBits == 16 ? in_part : in_part % 2 * 8 + in_part / 2;
}

// The row of a tile of 8 x 8 16-bit words that this lane addresses, from dim 16 k on.
template <typename Shape>
BH_DEVICE int KeyRowAt(int k) {
  const int lane = LaneIndex();
  if constexpr (Shape::kBits == 16) {
    // Rows of later dims are swizzled the same way.
    return 16 * k * Shape::kKeyRowBytes +
           SwizzledAt<Shape::kKeyRowBytes>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
  } else {
    return (16 * k * Shape::kBits / 8 + lane) * Shape::kKeyRowBytes;
  }
}
template <typename Shape>
BH_DEVICE int ValueRowAt(int k) {
  const int lane = LaneIndex();
  if constexpr (Shape::kBits == 16) {
    return SwizzledAt<Shape::kValueRowBytes>(lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2);
  } else {
    return SwizzledAt<Shape::kValueRowBytes>(lane % 16, k * Shape::kBits / 8 + lane / 16);
  }
}

// The codes in the even or odd bytes of a word as bf16, int8 less 128: the low seven bits become
// the fraction of 128, and -256 or, if the high bit is set, -128 is added.
template <KvFormat kFormat>
BH_DEVICE uint32_t PairOfBytes(uint32_t word, bool odd) {
  if constexpr (kFormat == KvFormat::kInt8) {
    constexpr uint32_t kOnes = 0x3F803F80U;
    const uint32_t codes = odd ? word >> 8 : word;
    return FmaBf16Pairs(AndXor(codes, 0x007F007FU, 0x43004300U), kOnes,
                        AndXor(codes, 0x00800080U, 0xC380C380U));
  } else {
    return E4m3PairAt(__byte_perm(word, 0, 0x3120U), odd ? 2 : 0);
  }
}

// The codes in the low or high halves of the even or odd bytes, less 8.
BH_DEVICE uint32_t PairOfHalfBytes(uint32_t word, bool odd, bool high) {
  constexpr uint32_t kOnes = 0x3F803F80U;
  const uint32_t codes = word >> (8 * int{odd} + 4 * int{high});
  return FmaBf16Pairs(AndXor(codes, 0x000F000FU, 0x43004300U), kOnes, 0xC308C308U);
}

// A split of the cache of a one-token sequence.
struct DecodeWork {
  int seq = -1;
  int token = 0;
  int position = 0;
  const int32_t* blocks = nullptr;
  int row = 0;                 // in `parts`
  bool is_only_split = false;  // the only one that the token sees
  CacheRange range;            // empty: before the window

  BH_DEVICE int begin() const { return range.first / kPartTokens * kPartTokens; }

  // Returns whether its sequence differs from the previous item's: it seldom does.
  BH_DEVICE bool Find(const AttendParameters& p, int index) {
    const AttendItem item = LoadVector<AttendItem>(p.items + index);
    const bool is_other = item.seq != seq;
    if (is_other) {
      seq = item.seq;
      token = p.cache.seq_begin[seq];
      const int64_t slot = p.cache.seq_slot[seq];
      blocks = p.cache.block_tables + slot * p.cache.block_table_stride;
      position = p.cache.position[token];
    }
    row = item.row0 + token;
    range = {item.split * item.split_tokens, (item.split + 1) * item.split_tokens};
    const int seen = FirstSeen(p, position);
    is_only_split = range.first <= seen && position < range.end;
    if (seen > range.first) range.first = seen;
    if (position + 1 < range.end) range.end = position + 1;
    return is_other;
  }
};

// The index of the first of `count` ascending numbers >= `least`: a warp looks at 32 at a time.
BH_DEVICE int FirstNotBelow(const int32_t* numbers, int count, int least) {
  int begin = 0;
  while (count > 0) {
    const int step = (count + kWarp - 1) / kWarp;
    const int at = LaneIndex() * step;
    const bool is_below = at < count && numbers[begin + at] < least;
    const int below = __popc(__ballot_sync(kFullMask, is_below ? 1 : 0));
    if (below == 0) break;
    const int last_below = (below - 1) * step;
    begin += last_below + 1;
    count = (count < last_below + step ? count : last_below + step) - last_below - 1;
  }
  return begin;
}

// A block's items, which are consecutive: if there are more items than blocks, those whose work
// begins in its share of the total.
struct ItemsOfBlock {
  int begin = 0;
  int end = 0;

  BH_DEVICE explicit ItemsOfBlock(const AttendParameters& p) {
    const int blocks = int(gridDim.x);
    const int block = int(blockIdx.x);
    const int num_items = p.num_items[0];
    if (num_items <= blocks) {
      begin = block < num_items ? block : num_items;
      end = block < num_items ? block + 1 : num_items;
      return;
    }
    const int32_t* const work_before = p.num_items + p.num_items[1];
    const int64_t work = work_before[num_items];
    begin = FirstNotBelow(work_before, num_items, static_cast<int>(work * block / blocks));
    end = FirstNotBelow(work_before, num_items, static_cast<int>(work * (block + 1) / blocks));
  }
};

// Codes of values whose rows are not a multiple of 16 bytes, four bytes at a time.
template <typename Shape>
BH_DEVICE void CopyNarrowValues(const unsigned char* values, int row_bytes, int token,
                                const CacheRange& range, unsigned char* to) {
  constexpr int kWords = Shape::kValueRowBytes / 4;
  BH_NO_UNROLL
  for (int i = LaneIndex(); i < kPartTokens * kWords; i += kWarp) {
    const int in_part = i / kWords;
    const int byte = i % kWords * 4;
    const bool valid =
        byte < row_bytes && token + in_part >= range.first && token + in_part < range.end;
    const uint32_t word =
        valid ? *reinterpret_cast<const uint32_t*>(values + in_part * row_bytes + byte) : 0;
    StoreWord(to + SwizzledAt<Shape::kValueRowBytes>(ValueRowOf<Shape::kBits>(in_part), byte / 16) +
                  byte % 16,
              word);
  }
}

// A warp's copies: its own tokens in all tiles of all items of the block, in order.
template <typename Shape>
class DecodeCopies {
 public:
  BH_DEVICE DecodeCopies(const AttendParameters& p, int64_t head_at, const ItemsOfBlock& items)
      : p_(p), head_at_(head_at), items_(items) {
    FindWork();
  }

  // Copies the next tile, as one group of copies; an empty one after the last.
  BH_DEVICE void Copy(unsigned char* stage) {
    if (token0_ < work_.range.end) {
      BH_UNROLL
      for (int i = 0; i < kParts; ++i) {
        const int token = FirstToken() + i * kPartTokens;
        if (token < work_.range.end) CopyPart(block_[i], token, stage + i * Shape::kPartBytes);
      }
      token0_ += Shape::kTokens;
      if (token0_ < work_.range.end) {
        FindBlocks();
      } else {
        FindWork();
      }
    }
    CpAsyncCommit();
  }

 private:
  static constexpr int kBits = Shape::kBits;
  static constexpr int kParts = Shape::kTokens / (kAttendWarps * kPartTokens);

  BH_DEVICE int FirstToken() const { return token0_ + WarpIndex() * kParts * kPartTokens; }

  // Finds the first remaining item that has any.
  BH_DEVICE void FindWork() {
    while (items_.begin < items_.end) {
      work_.Find(p_, items_.begin++);
      if (work_.range.first >= work_.range.end) continue;
      token0_ = work_.begin();
      return FindBlocks();
    }
  }

  // The loads are in flight while the previous tile is used.
  BH_DEVICE void FindBlocks() {
    BH_UNROLL
    for (int i = 0; i < kParts; ++i) {
      const int token = FirstToken() + i * kPartTokens;
      if (token < work_.range.end) block_[i] = work_.blocks[token >> p_.cache.block_shift];
    }
  }

  // Keys of tokens beyond the range may be anything: their scores are masked. Their values are
  // zero, as are padded dims. Usually all tokens are within the range.
  BH_DEVICE void CopyPart(int block, int token, unsigned char* to) const {
    const CacheParameters& cache = p_.cache;
    const unsigned char* const keys = cache.base + block * cache.block_bytes + head_at_;
    const int in_block = token & (cache.block_tokens - 1);
    if (cache.head_dim == Shape::kDims && token >= work_.range.first &&
        token + kPartTokens <= work_.range.end) {
      CopyKeys<true>(keys + in_block * (kBits == 16 ? 2 : 1), to);
      CopyValues<true>(keys + cache.keys_bytes + in_block * Shape::kValueRowBytes, token,
                       to + Shape::kValuesAt);
    } else {
      CopyKeys<false>(keys + in_block * (kBits == 16 ? 2 : 1), to);
      const int row_bytes = cache.head_dim * kBits / 8;
      const unsigned char* const values = keys + cache.keys_bytes + in_block * row_bytes;
      if (kBits == 16 || row_bytes % 16 == 0) {
        CopyValues<false>(values, token, to + Shape::kValuesAt);
      } else {
        CopyNarrowValues<Shape>(values, row_bytes, token, work_.range, to + Shape::kValuesAt);
      }
    }
    if constexpr (Shape::kQuantized) {
      if (LaneIndex() < 8) {
        const int at = (LaneIndex() / 2 * cache.block_tokens + in_block) * 2 + LaneIndex() % 2 * 16;
        CpAsync16(to + Shape::kScalingAt + LaneIndex() * 16, keys + 2 * cache.keys_bytes + at,
                  true);
      }
    }
  }

  template <bool kWhole>
  BH_DEVICE void CopyKeys(const unsigned char* keys, unsigned char* to) const {
    constexpr int kChunks = Shape::kKeyRowBytes / 16;
    constexpr int kRowsAtOnce = kWarp / kChunks;
    const int rows = kBits == 4 ? p_.cache.head_dim / 2 : p_.cache.head_dim;
    const int row_bytes = p_.cache.block_tokens * (kBits == 16 ? 2 : 1);
    const int chunk = LaneIndex() % kChunks;
    const unsigned char* from = keys + LaneIndex() / kChunks * row_bytes + chunk * 16;
    const auto copy = [&](int row0) {
      const int row = row0 + LaneIndex() / kChunks;
      const bool valid = kWhole || row < rows;
      CpAsync16(to + SwizzledAt<Shape::kKeyRowBytes>(row, chunk), valid ? from : p_.cache.base,
                valid);
      from += kRowsAtOnce * row_bytes;
    };
    if constexpr (kWhole) {
      BH_UNROLL
      for (int row0 = 0; row0 < Shape::kKeyRows; row0 += kRowsAtOnce) copy(row0);
    } else {
      BH_NO_UNROLL
      for (int row0 = 0; row0 < Shape::kKeyRows; row0 += kRowsAtOnce) copy(row0);
    }
  }

  template <bool kWhole>
  BH_DEVICE void CopyValues(const unsigned char* values, int token, unsigned char* to) const {
    constexpr int kChunks = Shape::kValueRowBytes / 16;
    constexpr int kTokensAtOnce = kWarp / kChunks;
    const int row_bytes = kWhole ? Shape::kValueRowBytes : p_.cache.head_dim * kBits / 8;
    const int chunk = LaneIndex() % kChunks;
    const unsigned char* from = values + LaneIndex() / kChunks * row_bytes + chunk * 16;
    const auto copy = [&](int first) {
      const int in_part = first + LaneIndex() / kChunks;
      const int of = token + in_part;
      const bool valid =
          kWhole || (of >= work_.range.first && of < work_.range.end && chunk * 16 < row_bytes);
      CpAsync16(to + SwizzledAt<Shape::kValueRowBytes>(ValueRowOf<kBits>(in_part), chunk),
                valid ? from : p_.cache.base, valid);
      from += kTokensAtOnce * row_bytes;
    };
    if constexpr (kWhole) {
      BH_UNROLL
      for (int first = 0; first < kPartTokens; first += kTokensAtOnce) copy(first);
    } else {
      BH_NO_UNROLL
      for (int first = 0; first < kPartTokens; first += kTokensAtOnce) copy(first);
    }
  }

  const AttendParameters& p_;
  const int64_t head_at_;
  ItemsOfBlock items_;  // after that of work_
  DecodeWork work_;
  int token0_ = 0;  // of the tile; after the last item not below the range's end
  int block_[kParts] = {};
};

}  // namespace bulkhead::cuda
