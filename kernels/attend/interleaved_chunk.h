// A chunk of a bf16 cache in the layout of tile registers: keys in pairs of d, values in pairs of
// tokens, interleaved when a unit first needs them.
#pragma once

#include "kernels/attend/attention_chunk.h"
#include "kernels/attend/attention_rows.h"
#include "kernels/attend/in_bf16.h"
#include "kernels/simd/tile_shapes.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

inline constexpr int64_t kTileRowBytes = kTileRegisterBytes;
inline constexpr int64_t kTileBytes = kTileRegisterRows * kTileRowBytes;
inline constexpr int kGroupTokens = kAttentionTileInputs;
static_assert(kGroupTokens == 2 * kLanes);

BH_INLINE Range GroupsOf(Range tokens) {
  return {tokens.begin / kGroupTokens, (tokens.end + kGroupTokens - 1) / kGroupTokens};
}

// Tokens, vectors of 16 and groups of 32 are relative to the chunk's begin.
class InterleavedChunk {
 public:
  // `keys` and `values`: room for a whole chunk. Unless it `keeps` interleaved data, only the last
  // group of keys, and two tiles of columns, are present, always in the same L1 lines: writing
  // others takes longer than interleaving.
  InterleavedChunk(const AttentionCall& call, const AttentionUnit& unit, bool keeps, char* keys,
                   char* values)
      : keeps_(keeps),
        call_(call),
        chunk_(call, unit),
        key_tiles_(AttentionKeyTiles(call.head_dim)),
        value_tiles_(PaddedHeadDim(call.value_dim) / kLanes),
        keys_(keys),
        values_(values) {}

  int64_t key_tiles() const { return key_tiles_; }
  int value_tiles() const { return value_tiles_; }
  const CacheChunk<Bf16Cache>& raw() const { return chunk_; }
  Range positions() const { return chunk_.positions(); }
  Range FromBegin(Range positions) const { return chunk_.FromBegin(positions); }

  void Locate(int chunk, Range visible) {
    chunk_.Locate(chunk, visible);
    located_ = seen_ = FromBegin(Common(visible, positions()));
    keys_done_ = values_done_ = 0;
  }

  // For 32 tokens: [2][tiles of d][16 pairs of d][16 tokens][2].
  const char* KeysOf(int group) const { return KeysAt(group); }
  // The same for 32 tokens and two tiles of columns: [2][16 pairs of tokens][16 columns][2].
  const char* ValuesOf(int tiles, int group) const { return ValuesAt(tiles, group); }

  BH_INLINE void NeedKeys(int group) {
    if ((keys_done_ >> group & 1) != 0) return;
    if (keeps_) keys_done_ |= 1 << group;
    const int end = (located_.end + kLanes - 1) / kLanes;
    for (int v = 2 * group; v < 2 * group + 2; ++v) {
      if (v < located_.begin / kLanes || v >= end) continue;
      InterleaveKeys(v, KeysAt(group) + v % 2 * key_tiles_ * kTileBytes);
    }
  }

  // Interleaves two tiles of columns. Must be requested in ascending order.
  void NeedValues(int tiles, Range groups) {
    for (int group = groups.begin; group < groups.end; ++group) {
      if ((values_done_ >> group & 1) != 0) continue;
      for (int tile = 2 * tiles; tile < Min(2 * tiles + 2, value_tiles_); ++tile) {
        char* const to = ValuesAt(tiles, group) + tile % 2 * kTileBytes;
        call_.latent ? InterleaveLatentValues(group, tile, to) : InterleaveValues(group, tile, to);
      }
      const bool are_last = 2 * tiles + 2 >= value_tiles_;
      if (keeps_ && are_last) values_done_ |= 1 << group;
    }
  }
  // Prefetches what follows a group of keys: of tile `tile` of d, for half of the tokens.
  BH_INLINE void FetchBehindKeys(int group, int64_t tile, int half) const {
    if (keeps_) {
      return FetchTile(KeysAt(Min(group + 1, kChunkGroups - 1)) +
                       (half * key_tiles_ + tile) * kTileBytes);
    }
    const int ahead = group + 2;
    if (ahead < GroupsOf(located_).end) FetchRawKeys(chunk_.keys()[VectorIn(ahead, half)], tile);
    if (tile == 0 && !call_.latent) FetchRawValues(0, VectorIn(group, half));
  }
  // The same for two tiles of columns.
  BH_INLINE void FetchBehindValues(int tiles, int group, int half) const {
    if (keeps_) {
      return FetchTile(ValuesAt(tiles, Min(group + 1, kChunkGroups - 1)) + half * kTileBytes);
    }
    if (call_.latent) return;  // values are keys, which have been read
    if (2 * tiles + 2 < value_tiles_) return FetchRawValues(tiles + 1, VectorIn(group, half));
    // The next chunk's first keys.
    const int end = (located_.end + kLanes - 1) / kLanes;
    const uint16_t* const keys = chunk_.values()[end + (group + half) % kAttentionAhead];
    for (int64_t tile = half; tile < key_tiles_; tile += 2) FetchRawKeys(keys, tile);
  }

  // From now on values of other tokens count as 0.
  void SeeOnly(Range tokens) {
    seen_ = tokens;
    values_done_ = 0;
  }

  // Whether all values of these tokens are finite.
  bool ValuesAreFinite(Range tokens) const {
    bool finite = true;
    if (call_.latent) {
      for (int s = tokens.begin; s < tokens.end; s = (s / kLanes + 1) * kLanes) {
        const int n = Min((s / kLanes + 1) * kLanes, tokens.end) - s;
        for (int c = 0; c < call_.value_dim; ++c) {
          finite = finite && AreFinite(ValueAt(s, c), n);
        }
      }
      return finite;
    }
    for (int s = tokens.begin; s < tokens.end; ++s) {
      for (int c = 0; c < call_.value_dim; c += kGroupTokens) {
        const int n = Min(kGroupTokens, call_.value_dim - c);
        finite = finite && AreFinite(ValueAt(s, c), n);
      }
    }
    return finite;
  }

 private:
  const uint16_t* ValueAt(int token, int64_t column) const {
    const int v = token / kLanes;
    return call_.latent ? chunk_.keys()[v] + column * chunk_.KeyStride() + token % kLanes
                        : chunk_.values()[v] + token % kLanes * chunk_.ValueStride() + column;
  }

  char* KeysAt(int group) const {
    return keys_ + (keeps_ ? group : 0) * 2 * key_tiles_ * kTileBytes;
  }
  char* ValuesAt(int tiles, int group) const {
    return values_ + ((keeps_ ? tiles : 0) * kChunkGroups + group) * 2 * kTileBytes;
  }

  // A vector of `group`; one that is located, if that vector is not.
  int VectorIn(int group, int half) const {
    const int end = (located_.end + kLanes - 1) / kLanes;
    return Max(located_.begin / kLanes, Min(2 * group + half, end - 1));
  }
  BH_INLINE static void FetchTile(const char* tile) {
    for (int line = 0; line < kTileBytes; line += kTileRowBytes) Prefetch(tile + line);
  }
  BH_INLINE void FetchRawKeys(const uint16_t* key, int64_t tile) const {
    const int64_t stride = chunk_.KeyStride();
    const int64_t step = Max(1, kLineNumbers / static_cast<int>(stride));  // d in a line
    for (int64_t i = 0; i < kAttentionTileInputs; i += step) {
      PrefetchLater(key + (tile * kAttentionTileInputs + i) * stride);
    }
  }
  BH_INLINE void FetchRawValues(int tiles, int v) const {
    const uint16_t* value = chunk_.values()[v] + tiles * kLineNumbers;
    const int64_t stride = chunk_.ValueStride();
    for (int s = 0; s < kLanes; ++s, value += stride) PrefetchLater(value);
  }

  void InterleaveKeys(int v, char* to) const {
    const int64_t stride = chunk_.KeyStride();
    const uint16_t* key = chunk_.keys()[v];
    char* const end = to + key_tiles_ * kTileBytes;
    for (int i = 1; i < call_.head_dim; i += 2, to += kTileRowBytes) {
      InterleaveNumbers(key, key + stride, kLanes, to);
      key += 2 * stride;
    }
    if (call_.head_dim % 2 == 1) {
      InterleaveNumbers(key, kZeros, kLanes, to);
      to += kTileRowBytes;
    }
    for (; to < end; to += kTileRowBytes) InterleaveNumbers(kZeros, kZeros, kLanes, to);
  }

  void InterleaveValues(int group, int tile, char* to) const {
    const Range tokens = {group * kGroupTokens, (group + 1) * kGroupTokens};
    const int columns = Min(kLanes, call_.value_dim - tile * kLanes);
    if (tokens.begin < seen_.begin || tokens.end > seen_.end || columns < kLanes) {
      return InterleaveSomeValues(tokens, tile * kLanes, columns, to);
    }
    const int64_t stride = chunk_.ValueStride();
    for (int v = 2 * group; v < 2 * group + 2; ++v) {
      const uint16_t* value = chunk_.values()[v] + tile * kLanes;
      for (int s = 0; s < kLanes; s += 2, to += kTileRowBytes, value += 2 * stride) {
        InterleaveNumbers(value, value + stride, kLanes, to);
      }
    }
  }

  void InterleaveSomeValues(Range tokens, int column, int columns, char* to) const {
    for (int s = tokens.begin; s < tokens.end; s += 2, to += kTileRowBytes) {
      const auto value = [&](int token) {
        return token < seen_.begin || token >= seen_.end ? kZeros : ValueAt(token, column);
      };
      InterleaveNumbers(value(s), value(s + 1), columns, to);
    }
  }

  // The same if values are the first columns of keys, with adjacent tokens.
  void InterleaveLatentValues(int group, int tile, char* to) const {
    const int first = group * kGroupTokens;
    const Range tokens = Common(seen_, {first, first + kGroupTokens});
    I32x16 columns[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      alignas(64) uint16_t column[kGroupTokens] = {};
      const int64_t c = tile * kLanes + i;
      if (c < call_.value_dim && tokens.end - tokens.begin == kGroupTokens) {
        __builtin_memcpy(column, ValueAt(first, c), kLanes * sizeof(uint16_t));
        __builtin_memcpy(column + kLanes, ValueAt(first + kLanes, c), kLanes * sizeof(uint16_t));
      } else if (c < call_.value_dim) {
        for (int s = tokens.begin; s < tokens.end; ++s) column[s - first] = *ValueAt(s, c);
      }
      columns[i] = LoadI(reinterpret_cast<const int32_t*>(column));
    }
    Transpose(columns);
    for (int pair = 0; pair < kLanes; ++pair) {
      Store(reinterpret_cast<float*>(to + pair * kTileRowBytes), FromBits(columns[pair]));
    }
  }

  static constexpr int kLineNumbers = 64 / 2;
  static constexpr int kChunkGroups = kAttentionChunk / kGroupTokens;
  alignas(64) static constexpr uint16_t kZeros[kLanes] = {};

  const bool keeps_;
  const AttentionCall& call_;
  CacheChunk<Bf16Cache> chunk_;
  const int64_t key_tiles_;
  const int value_tiles_;
  char* const keys_;
  char* const values_;
  Range located_{};
  Range seen_{};  // of values
  // One bit per group.
  int keys_done_ = 0;
  int values_done_ = 0;
};

}  // namespace bulkhead::BH_ISA
