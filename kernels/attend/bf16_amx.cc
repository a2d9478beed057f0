// Attention in bf16 in AMX's tile registers: two tiles of rows by two of tokens for scores, and by
// two of columns for values. A chunk's keys and values are interleaved into pairs once for all rows
// of a unit. Compiled with the instructions and with their emulation.
#include "kernels/attend/bf16_amx.h"

#include "kernels/attend/attention_rows.h"
#include "kernels/attend/few_rows.h"
#include "kernels/attend/interleaved_chunk.h"
#include "kernels/simd/exp.h"
#include "memory/bf16.h"
#include "simd.h"
#include "tiles.h"

namespace bulkhead::BH_ISA {
namespace {

// Few heads take less than the keys and values of which they need none.
static_assert(kMaxFewHeads <= kTileRegisterRows &&
              kMaxFewHeads * kAttentionWeightStride <= kAttentionChunk * kLanes);

// Sums of both tiles of rows by both tiles of tokens or columns; queries or weights of rows; keys
// or values.
enum TileName { kSums00, kSums01, kSums10, kSums11, kRows0, kRows1, kCache0, kCache1 };

constexpr int kTwoTiles = 2 * kTileRegisterRows;
constexpr int64_t kWeightBytes = kAttentionWeightStride * 4;  // between rows

class TileRun {
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
      : call_(call),
        chunk_(call, unit, unit.num_tokens * unit.num_heads > kTwoTiles,
               reinterpret_cast<char*>(scratch + at.keys),
               reinterpret_cast<char*>(scratch + at.values)),
        rows_{call,
              unit,
              unit.num_tokens * unit.num_heads,
              PaddedHeadDim(call.value_dim),
              scratch + at.o,
              scratch + at.l,
              scratch + at.m,
              reinterpret_cast<Range*>(scratch + at.visible)},
        scale_(ScoreScaleOf(call, unit)),
        tiles_((rows_.count + kTileRegisterRows - 1) / kTileRegisterRows),
        tile_rows_((rows_.count + tiles_ - 1) / tiles_),
        few_(unit.num_tokens == 1 && rows_.count <= kMaxFewHeads && !call.latent &&
             call.head_dim % kLanes == 0),
        q_(reinterpret_cast<char*>(scratch + at.q)),
        few_q_(scratch + at.keys),
        few_weights_(scratch + at.values),
        scores_(scratch + at.scores),
        chunk_o_(scratch + at.chunk_o) {}

  static void ConfigureRows(int rows) {
    TileShapes shapes;
    for (int tile = 0; tile < kTiles; ++tile) {
      shapes.rows[tile] = tile < kCache0 ? rows : kTileRegisterRows;
      shapes.row_bytes[tile] = kTileRegisterBytes;
    }
    ConfigureTiles(shapes);
  }

  // In the chunk at hand, counted from its begin.
  Range SeenBy(int row) const {
    return chunk_.FromBegin(Common(rows_.visible[row], chunk_.positions()));
  }
  static Range VectorsOf(Range groups) { return {2 * groups.begin, 2 * groups.end}; }

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

  // [d][rows] in the place of the interleaved keys.
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

  // The chunk at hand, of which all rows see the same.
  void AddChunkByVectors() {
    const Range seen = SeenBy(0);
    const Range groups = GroupsOf(seen);
    const FewRows job{&chunk_.raw(), call_.head_dim, rows_.width, few_q_,
                      scores_,       few_weights_,   chunk_o_};
    const Range vectors = {seen.begin / kLanes, (seen.end + kLanes - 1) / kLanes};
    WithDenormalsAsZero([&] { ScoreFewRows(job, rows_.count, vectors); });
    float m[kTwoTiles];
    float l[kTwoTiles];
    Weigh(0, rows_.count, groups, m, l);
    for (int r = 0; r < rows_.count; ++r) {
      const uint16_t* const weights = reinterpret_cast<const uint16_t*>(ScoresOf(r));
      for (int s = vectors.begin * kLanes; s < vectors.end * kLanes; s += kLanes) {
        Store(few_weights_ + r * kAttentionWeightStride + s, LoadBf16(weights + s));
      }
    }
    WithDenormalsAsZero([&] { SumFewRows(job, rows_.count, seen); });
    KeepChunk(0, rows_.count, m, l);
  }

  // Whether rows may pass over the same values: a weight of 0 takes away what a row does not see,
  // but for a value that is not finite.
  bool CanShareValues(Range seen) const {
    const Range all = Common(rows_.visible_to_all, seen);
    if (all.empty()) return chunk_.ValuesAreFinite(chunk_.FromBegin(seen));
    return chunk_.ValuesAreFinite(chunk_.FromBegin({seen.begin, all.begin})) &&
           chunk_.ValuesAreFinite(chunk_.FromBegin({all.end, seen.end}));
  }

  // Of the rows of kRowTiles tiles: their chunk at hand.
  template <int kRowTiles>
  void AddChunk(int tile, bool shares_values) {
    const int first = tile * tile_rows_;
    const int rows = Min(kRowTiles * tile_rows_, rows_.count - first);
    const Range seen = rows_.SeenByAny(first, rows, chunk_.positions());
    if (seen.empty()) return;
    const Range groups = GroupsOf(chunk_.FromBegin(seen));
    Score<kRowTiles>(tile, groups);
    float m[kTwoTiles];
    float l[kTwoTiles];
    Weigh(first, rows, groups, m, l);
    if (shares_values) {
      Sum<kRowTiles>(groups, scores_, chunk_o_);
    } else {
      SumRowByRow(first, rows);
    }
    KeepChunk(first, rows, m, l);
  }

  // Of the rows in scores_ and chunk_o_.
  void KeepChunk(int first, int rows, const float* m, const float* l) {
    for (int r = 0; r < rows; ++r) {
      if (SeenBy(first + r).empty()) continue;
      float* const o = OutOf(r);
      for (int c = 0; c < rows_.width; c += kLanes) Store(o + c, Add(Load(o + c), Zero()));
      rows_.AddChunk(first + r, chunk_.positions().begin, m[r], l[r], o);
    }
  }

  // Of row `r` of two tiles.
  int LineOf(int r) const { return r / tile_rows_ * kTileRegisterRows + r % tile_rows_; }
  float* ScoresOf(int r) const { return scores_ + LineOf(r) * kAttentionWeightStride; }
  float* OutOf(int r) const { return chunk_o_ + LineOf(r) * rows_.width; }

  // Scores of a tile of rows and a group of tokens after the other, in two sets of sums in turn: a
  // set is stored while the next one is added up, because a store just behind its sums would hold
  // up all others.
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

  // Into tiles kSums and kSums + 1; the other two, where there are any, go to `before`. What comes
  // next is fetched, kHalves halves of it from `half` on.
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

  // Scores become weights in bf16, in the same place from a row's begin on: 0 for what is in
  // `groups` and not seen. Row after row in each loop, whose rows the CPU can work on at once.
  void Weigh(int first, int rows, Range groups, float* m, float* l) const {
    // The largest product is the largest score, which is scaled when all are.
    const bool by_power = call_.soft_cap == 0.0f && scale_ > 0.0f;
    const float power = by_power ? scale_ * kExpLog2E : kExpLog2E;
    float max[kTwoTiles] = {};
    for (int r = 0; r < rows; ++r) {
      const Range seen = SeenBy(first + r);
      if (seen.empty()) continue;
      const Range vectors = VectorsOf(GroupsOf(seen));
      if (!by_power) Scale(ScoresOf(r), vectors);
      max[r] = MaskScores(ScoresOf(r), vectors, seen, call_.soft_cap);
      m[r] = by_power ? max[r] * scale_ : max[r];
    }
    F32x16 sum[kTwoTiles];
    for (int r = 0; r < rows; ++r) {
      sum[r] = WeighRow(GroupsOf(SeenBy(first + r)), groups, power, max[r], ScoresOf(r));
    }
    for (int r = 0; r < rows; ++r) l[r] = SumLanes(sum[r]);
  }

  void Scale(float* scores, Range vectors) const {
    for (int v = vectors.begin; v < vectors.end; ++v) {
      Store(scores + v * kLanes, Mul(Load(scores + v * kLanes), Set1(scale_)));
    }
  }

  // `seen`: groups, too.
  BH_INLINE static F32x16 WeighRow(Range seen, Range groups, float power, float max,
                                   float* scores) {
    uint16_t* const weights = reinterpret_cast<uint16_t*>(scores);
    F32x16 sum = Zero();
    for (int g = groups.begin; g < groups.end; ++g) {
      F32x16 p[2] = {Zero(), Zero()};
      if (seen.begin <= g && g < seen.end) {
        for (int i = 0; i < 2; ++i) {
          const F32x16 score = Load(scores + g * kGroupTokens + i * kLanes);
          p[i] = Exp2ForBf16(Mul(Sub(score, Set1(max)), Set1(power)));
          sum = Add(sum, p[i]);
        }
      }
      StoreRounded(weights + g * kGroupTokens, p[0], p[1]);
    }
    return sum;
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

  // Each row over values interleaved for it alone.
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

  const AttentionCall& call_;
  InterleavedChunk chunk_;  // the one at hand
  UnitRows rows_;
  const float scale_;
  const int tiles_;  // of rows
  const int tile_rows_;
  const bool few_;  // rows, which are summed by vectors
  // AttentionTileLayout has them.
  char* const q_;
  float* const few_q_;        // in the place of the interleaved keys
  float* const few_weights_;  // and of the values
  float* const scores_;
  float* const chunk_o_;
};

}  // namespace

void AttendUnitInTiles(const AttentionCall& call, const AttentionUnit& unit, float* scratch) {
  TileRun(call, unit, scratch).Run();
}

}  // namespace bulkhead::BH_ISA
