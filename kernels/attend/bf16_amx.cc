// Attention in bf16 in AMX's tile registers: two tiles of rows by two of tokens for scores, and by
// two of columns for values. A chunk's keys and values are interleaved into pairs once for all rows
// of a unit. Compiled with the instructions and with their emulation.
#include "kernels/attend/in_bf16.h"

#include "kernels/attend/bf16_unit.h"
#include "kernels/attend/few_rows.h"
#include "memory/bf16.h"
#include "simd.h"
#include "tiles.h"

namespace bulkhead::BH_ISA {
namespace {

// Few heads use the memory of interleaved keys and values, which they do not need.
static_assert(kMaxFewHeads <= kTileRegisterRows &&
              kMaxFewHeads * kAttentionWeightStride <= kAttentionChunk * kLanes);

// Sums of both row tiles by both tiles of tokens or columns; queries or weights of rows; keys or
// values.
enum TileName { kSums00, kSums01, kSums10, kSums11, kRows0, kRows1, kCache0, kCache1 };

constexpr int64_t kWeightBytes = kAttentionWeightStride * 4;  // between rows

struct StoreWeights {
  BH_INLINE void operator()(float* line, int group, F32x16 a, F32x16 b) const {
    StoreRounded(reinterpret_cast<uint16_t*>(line) + group * kGroupTokens, a, b);
  }
};

class TileRun : Bf16Unit {
 public:
  TileRun(const AttentionCall& call, const AttentionUnit& unit, float* scratch)
      : TileRun(call, unit, scratch,
                AttentionTileLayoutOf(unit.num_tokens * unit.num_heads, call.head_dim,
                                      call.value_dim)) {}

  void Run() {
    if (!few_) ConfigureRows(tile_rows_);
    rows_.SetVisible();
    for (int row = 0; row < rows_.count; ++row) RoundQuery(row);
    if (few_) WidenQueries();
    for (int chunk = rows_.unit.chunk_begin; chunk < rows_.unit.chunk_end; ++chunk) {
      const Range seen =
          Common(rows_.visible_to_any, {chunk * kAttentionChunk, (chunk + 1) * kAttentionChunk});
      if (seen.empty()) continue;
      chunk_.Locate(chunk, rows_.visible_to_any);
      if (few_) {
        AddChunkByVectors();
        continue;
      }
      const bool shares_values = CanShareValues(seen);
      for (int tile = 0; tile < tiles_; tile += 2) {
        tile + 1 < tiles_ ? AddChunk<2>(tile, shares_values) : AddChunk<1>(tile, shares_values);
      }
    }
    if (rows_.unit.first_slot < 0) rows_.WriteOutputs();
    if (!few_) ReleaseTiles();
  }

 private:
  TileRun(const AttentionCall& call, const AttentionUnit& unit, float* scratch,
          const AttentionTileLayout& at)
      : Bf16Unit(call, unit, kTileRegisterRows, unit.num_tokens * unit.num_heads > kMaxRows,
                 scratch, at),
        few_(unit.num_tokens == 1 && rows_.count <= kMaxFewHeads && !call.latent &&
             call.head_dim % kLanes == 0),
        q_(reinterpret_cast<char*>(scratch + at.q)),
        few_q_(scratch + at.keys),
        few_weights_(scratch + at.values) {}

  static void ConfigureRows(int rows) {
    TileShapes shapes;
    for (int tile = 0; tile < kTiles; ++tile) {
      shapes.rows[tile] = tile < kCache0 ? rows : kTileRegisterRows;
      shapes.row_bytes[tile] = kTileRegisterBytes;
    }
    ConfigureTiles(shapes);
  }

  void RoundQuery(int row) {
    const float* const q = rows_.QueryOf(row);
    char* to =
        q_ + row / tile_rows_ * chunk_.key_tiles() * kTileBytes + row % tile_rows_ * kTileRowBytes;
    for (int64_t i = 0; i < chunk_.key_tiles(); ++i, to += kTileBytes) {
      const int left = call_.head_dim - static_cast<int>(i) * kAttentionTileInputs;
      const float* const x = q + i * kAttentionTileInputs;
      StoreRounded(reinterpret_cast<uint16_t*>(to), LoadN(x, Min(kLanes, left)),
                   LoadN(x + kLanes, Max(0, Min(kLanes, left - kLanes))));
    }
  }

  // [d][rows] in the space of the interleaved keys.
  void WidenQueries() {
    float* to = few_q_;
    for (int i = 0; i < call_.head_dim; ++i) {
      for (int row = 0; row < rows_.count; ++row) {
        const char* const tile = q_ + i / kAttentionTileInputs * kTileBytes + row * kTileRowBytes;
        uint16_t number;
        __builtin_memcpy(&number, tile + i % kAttentionTileInputs * 2, sizeof(number));
        *to++ = F32OfBf16(number);
      }
    }
  }

  // The current chunk, of which all rows see the same part.
  void AddChunkByVectors() {
    const Range seen = SeenBy(0);
    const Range groups = GroupsOf(seen);
    const FewRows job{&chunk_.raw(), call_.head_dim, rows_.width, few_q_,
                      scores_,       few_weights_,   chunk_o_};
    const Range vectors = {seen.begin / kLanes, (seen.end + kLanes - 1) / kLanes};
    WithDenormalsAsZero([&] { ScoreFewRows(job, rows_.count, vectors); });
    float m[kMaxRows];
    float l[kMaxRows];
    Weigh(0, rows_.count, groups, m, l, StoreWeights{});
    for (int r = 0; r < rows_.count; ++r) {
      const uint16_t* const weights = reinterpret_cast<const uint16_t*>(ScoresOf(r));
      for (int s = vectors.begin * kLanes; s < vectors.end * kLanes; s += kLanes) {
        Store(few_weights_ + r * kAttentionWeightStride + s, LoadBf16(weights + s));
      }
    }
    WithDenormalsAsZero([&] { SumFewRows(job, rows_.count, seen); });
    KeepChunk(0, rows_.count, m, l);
  }

  // Whether rows may pass over the same values: a weight of 0 cancels what a row does not see,
  // unless the value is not finite.
  bool CanShareValues(Range seen) const {
    const Range all = Common(rows_.visible_to_all, seen);
    if (all.empty()) return chunk_.ValuesAreFinite(chunk_.FromBegin(seen));
    return chunk_.ValuesAreFinite(chunk_.FromBegin({seen.begin, all.begin})) &&
           chunk_.ValuesAreFinite(chunk_.FromBegin({all.end, seen.end}));
  }

  // Adds the current chunk to the rows of kRowTiles tiles.
  template <int kRowTiles>
  void AddChunk(int tile, bool shares_values) {
    const int first = tile * tile_rows_;
    const int rows = Min(kRowTiles * tile_rows_, rows_.count - first);
    const Range seen = rows_.SeenByAny(first, rows, chunk_.positions());
    if (seen.empty()) return;
    const Range groups = GroupsOf(chunk_.FromBegin(seen));
    Score<kRowTiles>(tile, groups);
    float m[kMaxRows];
    float l[kMaxRows];
    Weigh(first, rows, groups, m, l, StoreWeights{});
    if (shares_values) {
      Sum<kRowTiles>(groups, scores_, chunk_o_);
    } else {
      SumRowByRow(first, rows);
    }
    KeepChunk(first, rows, m, l);
  }

  // Scores of a row tile and one group of tokens after the other, in two alternating sets of sums:
  // a set is stored while the next one is summed, because a store right after its sums would stall
  // all others.
  template <int kRowTiles>
  void Score(int tile, Range groups) {
    float* before = nullptr;
    for (int group = groups.begin; group < groups.end; ++group) {
      chunk_.NeedKeys(group);
      float* const to = scores_ + group * kGroupTokens;
      if constexpr (kRowTiles == 1) {
        (group - groups.begin) % 2 == 0 ? ScoreGroup<0, 2>(tile, group, 0, before)
                                        : ScoreGroup<2, 2>(tile, group, 0, before);
        before = to;
      } else {
        ScoreGroup<0, 1>(tile, group, 0, before);
        ScoreGroup<2, 1>(tile + 1, group, 1, to);
        before = to + kTileRegisterRows * kAttentionWeightStride;
      }
    }
    const bool odd = kRowTiles == 1 && (groups.end - groups.begin) % 2 == 1;
    odd ? StoreSums<0>(before, kWeightBytes) : StoreSums<2>(before, kWeightBytes);
  }

  // Sums into tiles kSums and kSums + 1; the other two, if any, are stored to `before`. Prefetches
  // kHalves halves of the next data, from `half` on.
  template <int kSums, int kHalves>
  BH_INLINE void ScoreGroup(int tile, int group, int half, float* before) {
    ZeroTile<kSums>();
    ZeroTile<kSums + 1>();
    const int64_t tiles = chunk_.key_tiles();
    const char* const q = q_ + tile * tiles * kTileBytes;
    const char* const keys = chunk_.KeysOf(group);
    for (int64_t i = 0; i < tiles; ++i) {
      LoadTile<kRows0>(q + i * kTileBytes, kTileRowBytes);
      LoadTile<kCache0>(keys + i * kTileBytes, kTileRowBytes);
      DotBf16Tiles<kSums, kRows0, kCache0>();
      LoadTile<kCache1>(keys + (tiles + i) * kTileBytes, kTileRowBytes);
      DotBf16Tiles<kSums + 1, kRows0, kCache1>();
      if (i == 0 && before != nullptr) StoreSums<2 - kSums>(before, kWeightBytes);
      for (int h = half; h < half + kHalves; ++h) chunk_.FetchBehindKeys(group, i, h);
    }
  }

  template <int kSums>
  BH_INLINE static void StoreSums(float* to, int64_t bytes) {
    StoreTile<kSums>(to, bytes);
    StoreTile<kSums + 1>(to + kLanes, bytes);
  }

  // out [rows][width] = weights [rows][kAttentionWeightStride / 2 pairs] by values.
  template <int kRowTiles>
  void Sum(Range groups, const float* weights, float* out) {
    for (int tiles = 0; 2 * tiles < chunk_.value_tiles(); ++tiles, out += 2 * kLanes) {
      chunk_.NeedValues(tiles, groups);
      2 * tiles + 1 < chunk_.value_tiles() ? SumColumns<kRowTiles, 2>(groups, weights, tiles, out)
                                           : SumColumns<kRowTiles, 1>(groups, weights, tiles, out);
    }
  }

  template <int kRowTiles, int kColumnTiles>
  BH_INLINE void SumColumns(Range groups, const float* weights, int tiles, float* out) const {
    ZeroTile<kSums00>();
    if constexpr (kColumnTiles == 2) ZeroTile<kSums01>();
    if constexpr (kRowTiles == 2) {
      ZeroTile<kSums10>();
      if constexpr (kColumnTiles == 2) ZeroTile<kSums11>();
    }
    for (int group = groups.begin; group < groups.end; ++group) {
      const float* const of_group = weights + group * kGroupTokens / 2;
      const char* const values = chunk_.ValuesOf(tiles, group);
      for (int half = 0; half < 2; ++half) chunk_.FetchBehindValues(tiles, group, half);
      LoadTile<kRows0>(of_group, kWeightBytes);
      LoadTile<kCache0>(values, kTileRowBytes);
      DotBf16Tiles<kSums00, kRows0, kCache0>();
      if constexpr (kColumnTiles == 2) {
        LoadTile<kCache1>(values + kTileBytes, kTileRowBytes);
        DotBf16Tiles<kSums01, kRows0, kCache1>();
      }
      if constexpr (kRowTiles == 2) {
        LoadTile<kRows1>(of_group + kTileRegisterRows * kAttentionWeightStride, kWeightBytes);
        DotBf16Tiles<kSums10, kRows1, kCache0>();
        if constexpr (kColumnTiles == 2) DotBf16Tiles<kSums11, kRows1, kCache1>();
      }
    }
    const int64_t bytes = rows_.width * 4;
    StoreTile<kSums00>(out, bytes);
    if constexpr (kColumnTiles == 2) StoreTile<kSums01>(out + kLanes, bytes);
    if constexpr (kRowTiles == 2) {
      out += kTileRegisterRows * rows_.width;
      StoreTile<kSums10>(out, bytes);
      if constexpr (kColumnTiles == 2) StoreTile<kSums11>(out + kLanes, bytes);
    }
  }

  // Each row over values that are interleaved for it only.
  void SumRowByRow(int first, int rows) {
    ConfigureRows(1);
    for (int r = 0; r < rows; ++r) {
      const Range seen = SeenBy(first + r);
      if (seen.empty()) continue;
      chunk_.SeeOnly(seen);
      Sum<1>(GroupsOf(seen), ScoresOf(r), OutOf(r));
    }
    ConfigureRows(tile_rows_);
  }

  const bool few_;  // few rows, which are summed by vectors
  // Layout: AttentionTileLayout.
  char* const q_;
  float* const few_q_;        // in the space of the interleaved keys
  float* const few_weights_;  // in the space of the values
};

}  // namespace

void AttendUnitInTiles(const AttentionCall& call, const AttentionUnit& unit, float* scratch) {
  TileRun(call, unit, scratch).Run();
}

}  // namespace bulkhead::BH_ISA
