// Attention by warpgroups (warpgroups.cuh) over a cache in codes: the copying warpgroup converts
// them to 16-bit numbers (attention_codes.cuh). Products then read the same as with a 16-bit cache.
// Each thread copies codes to its own place, one tile before they are needed, and expands them from
// there; scales and zeros are copied per warp.
#pragma once

#include "kernels/attend/attention_codes.cuh"
#include "kernels/attend/warpgroups_cache.cuh"

namespace bulkhead::cuda {

// After WarpgroupShape's data: codes of keys and of values [chunk][thread][16 bytes], then for
// each warp the scaling of its keys [2 tiles][4 groups of 16][scale, zero][16] and of its values
// [2 tiles][2 groups][scale, zero][16].
template <KvFormat kFormatOfCache, int kDimsOfHead>
struct WarpgroupCodesShape : WarpgroupShape<kDimsOfHead, 128, 2> {
  using Numbers = WarpgroupShape<kDimsOfHead, 128, 2>;
  static constexpr KvFormat kFormat = kFormatOfCache;
  static constexpr int kBits = KvElementBits(kFormat);
  // Expanding takes more registers than copying.
  static constexpr int kComputeRegisters = 216;
  static constexpr int kCopyRegisters = 72;
  static constexpr int kRowBytes = kDimsOfHead * kBits / 8;  // of a value
  // Chunks of 16 bytes that a thread copies of a tile's keys, and of its values.
  static constexpr int kChunks = Numbers::kTokens * kRowBytes / 16 / kWarpgroup;
  static constexpr int kCodesAt = Numbers::kBytes;
  static constexpr int kCodeBytes = kChunks * kWarpgroup * 16;
  static constexpr int kScalingAt = kCodesAt + 2 * kCodeBytes;
  static constexpr int kGroupScalingBytes = 2 * 16 * 2;
  static constexpr int kKeyScalingBytes = 4 * kGroupScalingBytes;
  static constexpr int kValueScalingBytes = 2 * kGroupScalingBytes;
  static constexpr int kWarpScalingBytes = 2 * (kKeyScalingBytes + kValueScalingBytes);
  static constexpr int kBytes =
      kScalingAt + (IsQuantized(kFormat) ? Numbers::kCopyWarps * kWarpScalingBytes : 0);
  static_assert(kBytes <= 227 << 10);
};

// A warp has the keys of 64 tokens in every second 8 rows of codes, and two groups of 16 values,
// each within a block of the cache.
template <typename Shape>
class CodeCopies {
 public:
  BH_DEVICE CodeCopies(const HeadCache& head, const CacheRange& range)
      : head_(head),
        range_(range),
        warp_((int(threadIdx.x) - Shape::kComputeThreads) / kWarp),
        codes_(SharedMemory() + Shape::kCodesAt + (int(threadIdx.x) - Shape::kComputeThreads) * 16),
        scaling_(SharedMemory() + Shape::kScalingAt + warp_ * Shape::kWarpScalingBytes) {}

  // Finds the blocks of the codes that are copied next, for the tile from token0 on.
  BH_DEVICE void FindKeys(int token0) {
    next_key_ = token0 + warp_ % 2 * 64 + Group() * 16;
    key_block_ = BlockOf(next_key_);
  }
  BH_DEVICE void FindValues(int token0) {
    next_value_ = token0;
    BH_UNROLL
    for (int group = 0; group < 2; ++group) value_blocks_[group] = BlockOf(token0 + InTile(group));
  }

  // Copies a whole tile; scaling in place `tile` % 2.
  BH_DEVICE void CopyKeys(int tile) const {
    CopyKeyScaling(tile);
    const unsigned char* from = KeysFrom();
    BH_UNROLL
    for (int i = 0; i < Shape::kChunks; ++i) {
      CopyKey(i, from);
      from += kKeyRows * head_.cache->block_tokens;
    }
  }
  BH_DEVICE void CopyValues(int tile) const {
    BH_NO_UNROLL
    for (int group = 0; group < 2; ++group) {
      CopyValueScaling(tile, group);
      const unsigned char* const from = ValuesFrom(group);
      BH_UNROLL
      for (int i = 0; i < kChunksOfGroup; ++i) CopyValue(group, i, from);
    }
  }

  // Expands codes to numbers, and copies the codes of the tile found last in their place. Keys are
  // expanded 8 tokens at a time, so that their scaling takes few registers.
  BH_DEVICE void ExpandKeys(int tile, unsigned char* keys) const {
    unsigned char* const rows = keys + warp_ % 2 * (Shape::kDims * 128);
    BH_NO_UNROLL
    for (int pass = 0; pass < 2; ++pass) {
      const int half = pass ^ BeginsWithHalf();
      ScalingOfEight scaling = {};
      if constexpr (kQuantized) {
        const unsigned char* const from = KeyScaling(tile) + half * 16;
        Take(LoadVector<Words4>(from), scaling.scale);
        Take(LoadVector<Words4>(from + 32), scaling.zero);
      }
      unsigned char* to[kParts];
      BH_UNROLL
      for (int part = 0; part < kParts; ++part) {
        to[part] = rows + ChunkOfRow(KeyRow() * kParts + part, Group() * 2 + half);
      }
      BH_UNROLL
      for (int i = 0; i < Shape::kChunks; ++i) {
        const auto codes = LoadVector<Words2>(codes_ + i * kPlaceBytes + half * 8);
        BH_UNROLL
        for (int part = 0; part < kParts; ++part) {
          StoreVector(to[part] + i * (kKeyRows * kParts * 128),
                      EightNumbers<Shape::kFormat>(codes, part, scaling));
        }
      }
    }
    CopyKeys(tile + 1);
  }
  // `token0`: of the tile, which is the one before the tile found last.
  BH_DEVICE void ExpandValues(int tile, int token0, unsigned char* values) const {
    BH_NO_UNROLL
    for (int group = 0; group < 2; ++group) {
      CopyValueScaling(tile + 1, group);
      const unsigned char* const next = ValuesFrom(group);
      ScalingOfEight scaling = {};
      Words4 codes[kChunksOfGroup];
      BH_UNROLL
      for (int i = 0; i < kChunksOfGroup; ++i) {
        codes[i] = LoadVector<Words4>(ValueCodes(group, i));
      }
      BH_UNROLL
      for (int i = 0; i < kChunksOfGroup; ++i) CopyValue(group, i, next);
      BH_UNROLL
      for (int i = 0; i < kChunksOfGroup; ++i) {
        const int in_tile = InTile(group) + InGroup(i);
        if (kQuantized && i % kChunksOfToken == 0) {
          const unsigned char* const at = ValueScaling(tile, group) + InGroup(i) * 2;
          // Beyond the range weights are 0, and numbers must be finite.
          const bool seen = IsSeen(token0 + in_tile);
          Fill(seen, at, scaling.scale);
          Fill(seen, at + 32, scaling.zero);
        }
        BH_UNROLL
        for (int half = 0; half < 2; ++half) {
          const Words2 of_half = {codes[i].w[2 * half], codes[i].w[2 * half + 1]};
          BH_UNROLL
          for (int part = 0; part < kParts; ++part) {
            const int chunk = (ChunkOf(i) * kParts + part) * 2 + half;
            StoreVector(values + chunk / 8 * (Shape::kTokens * 128) + in_tile / 8 * 1024 +
                            ChunkOfRow(LaneIndex() % 8, chunk % 8),
                        EightNumbers<Shape::kFormat>(of_half, part, scaling));
          }
        }
      }
    }
  }

 private:
  static constexpr bool kQuantized = IsQuantized(Shape::kFormat);
  static constexpr int kParts = 8 / Shape::kBits;  // codes per byte
  static constexpr int kChunksOfRow = Shape::kRowBytes / 16;
  static constexpr int kChunksOfGroup = Shape::kChunks / 2;
  static constexpr int kChunksOfToken = kChunksOfRow > 4 ? kChunksOfRow / 4 : 1;  // per thread
  static constexpr int kPlaceBytes = kWarpgroup * 16;  // from one chunk of a thread to its next
  static constexpr int kKeyRows = 16;                  // rows of codes of keys

  // The group of 16 keys whose codes are a chunk.
  BH_DEVICE static int Group() { return LaneIndex() / 8; }
  BH_DEVICE int KeyRow() const { return warp_ / 2 * 8 + LaneIndex() % 8; }  // first row
  // Lanes that access shared memory together must use different banks: with 8 bits two groups, with
  // 4 bits, where a row of codes is two rows of numbers, also lanes of one group.
  BH_DEVICE static int BeginsWithHalf() {
    return (Shape::kBits == 4 ? LaneIndex() / 4 ^ LaneIndex() / 8 : LaneIndex() / 8) & 1;
  }

  // 16 values per group; each chunk belongs to one value.
  BH_DEVICE int InTile(int group) const { return (group * Shape::kCopyWarps + warp_) * 16; }
  BH_DEVICE static int InGroup(int i) {
    return i * 4 / kChunksOfRow * 8 + LaneIndex() / 8 / kChunksOfRow * 8 + LaneIndex() % 8;
  }
  BH_DEVICE static int ChunkOf(int i) {
    return i * 4 % kChunksOfRow + LaneIndex() / 8 % kChunksOfRow;
  }
  BH_DEVICE bool IsSeen(int token) const {
    return static_cast<unsigned>(token - range_.first) <
           static_cast<unsigned>(range_.end - range_.first);
  }

  // The block of 16 tokens; negative: none of them is seen.
  BH_DEVICE int BlockOf(int token) const {
    const bool seen = token + 15 >= range_.first && token < range_.end;
    return seen ? head_.blocks[token >> head_.cache->block_shift] : -1;
  }
  BH_DEVICE const unsigned char* HeadIn(int block) const {
    return head_.cache->base + block * head_.cache->block_bytes + head_.head_at;
  }
  // Absent data is not read.
  BH_DEVICE const unsigned char* KeysFrom() const {
    return HeadIn(key_block_) + head_.InBlock(next_key_) + KeyRow() * head_.cache->block_tokens;
  }
  BH_DEVICE void CopyKey(int i, const unsigned char* from) const {
    CpAsync16(codes_ + i * kPlaceBytes, from, key_block_ >= 0);
  }
  BH_DEVICE int ValueBlock(int group) const {
    return group == 0 ? value_blocks_[0] : value_blocks_[1];
  }
  BH_DEVICE const unsigned char* ValuesFrom(int group) const {
    return HeadIn(ValueBlock(group)) + head_.cache->keys_bytes +
           head_.InBlock(next_value_ + InTile(group)) * Shape::kRowBytes;
  }
  BH_DEVICE unsigned char* ValueCodes(int group, int i) const {
    return codes_ + Shape::kCodeBytes + (group * kChunksOfGroup + i) * kPlaceBytes;
  }
  BH_DEVICE void CopyValue(int group, int i, const unsigned char* from) const {
    CpAsync16(ValueCodes(group, i), from + InGroup(i) * Shape::kRowBytes + ChunkOf(i) * 16,
              IsSeen(next_value_ + InTile(group) + InGroup(i)));
  }

  // The first four of the lanes that share 16 tokens copy 16 bytes each of their scales and zeros,
  // which are `part` of a block's scaling.
  BH_DEVICE void CopyScaling(int block, int token, int part, unsigned char* to) const {
    const int row = LaneIndex() % 4 / 2;
    const int tokens_before = (part + row) * head_.cache->block_tokens + head_.InBlock(token);
    CpAsync16(
        to + LaneIndex() % 4 * 16,
        HeadIn(block) + 2 * head_.cache->keys_bytes + tokens_before * 2 + LaneIndex() % 2 * 16,
        block >= 0);
  }
  BH_DEVICE void CopyKeyScaling(int tile) const {
    if constexpr (!kQuantized) return;
    if (LaneIndex() % 8 >= 4) return;
    CopyScaling(key_block_, next_key_, 0, KeyScaling(tile));
  }
  BH_DEVICE void CopyValueScaling(int tile, int group) const {
    if constexpr (!kQuantized) return;
    if (LaneIndex() >= 4) return;
    CopyScaling(ValueBlock(group), next_value_ + InTile(group), 2, ValueScaling(tile, group));
  }
  BH_DEVICE unsigned char* KeyScaling(int tile) const {
    return scaling_ + tile % 2 * Shape::kKeyScalingBytes + Group() * Shape::kGroupScalingBytes;
  }
  BH_DEVICE unsigned char* ValueScaling(int tile, int group) const {
    return scaling_ + 2 * Shape::kKeyScalingBytes + tile % 2 * Shape::kValueScalingBytes +
           group * Shape::kGroupScalingBytes;
  }

  const HeadCache head_;
  const CacheRange range_;
  const int warp_;
  unsigned char* const codes_;    // this thread's
  unsigned char* const scaling_;  // this warp's
  int next_key_ = 0;              // first key whose codes this lane copies
  int next_value_ = 0;            // first of the tile
  int key_block_ = -1;
  int value_blocks_[2] = {-1, -1};
};

// The copying warpgroup, as in CopyTiles: between two barriers a tile's values and the next tile's
// keys are expanded, and the codes of the tiles after these are copied.
template <typename Shape>
BH_DEVICE void ExpandTiles(const HeadCache& head, const CacheRange& range) {
  CodeCopies<Shape> copies(head, range);
  const auto wait_for_older = [] {
    CpAsyncWait<1>();
    __syncwarp();
  };
  int token0 = range.first / Shape::kTokens * Shape::kTokens;
  copies.FindKeys(token0);
  copies.FindValues(token0);
  copies.CopyKeys(0);
  CpAsyncCommit();
  copies.CopyValues(0);
  CpAsyncCommit();
  copies.FindKeys(token0 + Shape::kTokens);
  wait_for_older();
  copies.ExpandKeys(0, KeysOf<Shape>(0));
  CpAsyncCommit();
  for (int tile = 0; token0 < range.end; ++tile, token0 += Shape::kTokens) {
    copies.FindValues(token0 + Shape::kTokens);
    copies.FindKeys(token0 + 2 * Shape::kTokens);
    FenceForProducts();
    __syncthreads();
    wait_for_older();
    copies.ExpandValues(tile, token0, ValuesOf<Shape>(tile % 2));
    CpAsyncCommit();
    wait_for_older();
    if (token0 + Shape::kTokens < range.end) {
      copies.ExpandKeys(tile + 1, KeysOf<Shape>((tile + 1) % 2));
    }
    CpAsyncCommit();
  }
  CpAsyncWait<0>();
  FenceForProducts();
  __syncthreads();
}

}  // namespace bulkhead::cuda
