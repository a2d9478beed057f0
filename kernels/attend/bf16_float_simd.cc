// Attention in bf16 (AttentionDType::kBf16) in vectors of pairs: tiles of rows over a chunk that is
// interleaved once for all rows of a unit, and the heads of one token directly over the cache.
#include "kernels/attend/attention_tiles.h"
#include "kernels/attend/bf16_unit.h"
#include "kernels/attend/in_bf16.h"
#include "kernels/simd/for_vectors.h"
#include "simd.h"

namespace bulkhead::BH_ISA {
namespace {

constexpr int kMaxHeadsInPlace = 8;
constexpr int kVectorPairs = kLanes / 2;                        // of tokens
constexpr int kGroupPairs = kGroupTokens / 2;                   // of tokens
constexpr int64_t kLineBytes = kTileRowBytes;                   // of 16 tokens or columns
constexpr int kRowWords = kWordsPerPair * kAttentionChunk / 2;  // of weights
static_assert(kRowWords <= kAttentionWeightStride);

template <int kRows, int kVectors>
using Sums = F32x16[kRows][kVectors];

// Keys of 16 tokens each: pair by pair of d.
template <int kVectors>
struct InterleavedKeys : InterleavedPairs<kVectors> {
  BH_INLINE InterleavedKeys(const InterleavedChunk& chunk, int vector) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      this->at[v] =
          chunk.KeysOf((vector + v) / 2) + (vector + v) % 2 * chunk.key_tiles() * kTileBytes;
    }
  }
  BH_INLINE void Next() {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) this->at[v] += kLineBytes;
  }
};
template <int kVectors>
struct KeysInPlace : CachePairs<kVectors> {
  const uint16_t* ahead[kVectors];
  BH_INLINE KeysInPlace(const InterleavedChunk& chunk, int vector) {
    this->odd = chunk.raw().KeyStride();
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      this->at[v] = chunk.raw().keys()[vector + v];
      ahead[v] = chunk.raw().keys()[vector + v + kAttentionAhead];
    }
  }
  BH_INLINE void Next() {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      PrefetchLater(ahead[v]);
      PrefetchLater(ahead[v] + this->odd);
      this->at[v] += 2 * this->odd;
      ahead[v] += 2 * this->odd;
    }
  }
};

// scores [kRows][16 kVectors], rows kAttentionWeightStride apart = q [pairs][words][kRows] by keys.
template <int kRows, int kVectors, typename Keys>
BH_INLINE void ScoreVectors(const float* q, int pairs, Keys keys, float* scores) {
  Sums<kRows, kVectors> sums;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Zero();
  }
  InFlushMode(sums, [&] {
    for (int i = 0; i < pairs; ++i, q += kWordsPerPair * kRows) {
      AddPair(q, 1, kRows, keys, sums);
      keys.Next();
    }
  });
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Store(scores + r * kAttentionWeightStride + v * kLanes, sums[r][v]);
    }
  }
}

template <int kRows, template <int> typename Keys>
[[gnu::noinline]] void ScoreRows(const float* q, int pairs, const InterleavedChunk& chunk,
                                 Range vectors, float* scores) {
  constexpr int kVectors = TileVectors(kRows);
  int v = vectors.begin;
  for (; v + kVectors <= vectors.end; v += kVectors) {
    ScoreVectors<kRows, kVectors>(q, pairs, Keys<kVectors>(chunk, v), scores + v * kLanes);
  }
  for (; v < vectors.end; ++v) {
    ScoreVectors<kRows, 1>(q, pairs, Keys<1>(chunk, v), scores + v * kLanes);
  }
}

// Values of 16 columns each from `column` on, pair by pair of tokens. A run is as long as its
// contiguous memory.
template <int kVectors>
struct InterleavedValues {
  static constexpr int kRun = kGroupPairs;
  static constexpr int kMaxVectors = 2;
  const InterleavedChunk& chunk;
  int column;

  struct At : InterleavedPairs<kVectors> {
    BH_INLINE void Next() {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) this->at[v] += kLineBytes;
    }
  };
  BH_INLINE At From(int pair) const {
    At pairs;
    const int tile = column / kLanes;
    const char* const values =
        chunk.ValuesOf(tile / 2, pair / kGroupPairs) + pair % kGroupPairs * kLineBytes;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) pairs.at[v] = values + (tile % 2 + v) * kTileBytes;
    return pairs;
  }
};
template <int kVectors>
struct ValuesInPlace {
  static constexpr int kRun = kVectorPairs;
  static constexpr int kMaxVectors = 4;
  const InterleavedChunk& chunk;
  int column;

  struct At : CachePairs<kVectors> {
    const uint16_t* ahead;
    BH_INLINE void Next() {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; v += 2) {
        PrefetchLater(ahead + v * kLanes);
        PrefetchLater(ahead + this->odd + v * kLanes);
      }
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) this->at[v] += 2 * this->odd;
      ahead += 2 * this->odd;
    }
  };
  BH_INLINE At From(int pair) const {
    At pairs;
    pairs.odd = chunk.raw().ValueStride();
    const uint16_t* const* const values = chunk.raw().values() + pair / kVectorPairs;
    const int64_t from = pair % kVectorPairs * 2 * pairs.odd + column;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) pairs.at[v] = values[0] + from + v * kLanes;
    pairs.ahead = values[kAttentionAhead] + from;
    return pairs;
  }
};

// Rows of weights and of sums: out [kRows][16 kVectors], rows `width` apart, is continued.
struct ValueSums {
  const float* weights;  // [pairs][words], rows kAttentionWeightStride apart
  float* out;
  int width;
};

template <int kRows, int kVectors, typename Body>
BH_INLINE void WithSums(float* out, int width, const Body& body) {
  Sums<kRows, kVectors> sums;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Load(out + r * width + v * kLanes);
  }
  InFlushMode(sums, [&] { body(sums); });
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(out + r * width + v * kLanes, sums[r][v]);
  }
}

// Tokens [begin, end) relative to the chunk's begin: whole pairs, and half pairs at either end.
template <int kRows, int kVectors, template <int> typename Values>
BH_INLINE void SumVectors(const ValueSums& job, const Values<kVectors>& values, Range tokens) {
  WithSums<kRows, kVectors>(job.out + values.column, job.width, [&](auto& sums) {
    const auto add = [&](int pair, const auto& pairs) __attribute__((always_inline)) {
      AddPair(job.weights + pair * kWordsPerPair, kAttentionWeightStride, 1, pairs, sums);
    };
    using At = typename Values<kVectors>::At;
    int pair = tokens.begin / 2;
    if (tokens.begin % 2 != 0) {
      add(pair, HalfPairs<At, 1>{values.From(pair)});
      ++pair;
    }
    while (pair < tokens.end / 2) {
      const int run = (pair / Values<kVectors>::kRun + 1) * Values<kVectors>::kRun;
      const int stop = Min(run, tokens.end / 2);
      for (At at = values.From(pair); pair < stop; ++pair) {
        add(pair, at);
        at.Next();
      }
    }
    if (tokens.end % 2 != 0 && pair == tokens.end / 2) {
      add(pair, HalfPairs<At, 0>{values.From(pair)});
    }
  });
}

// All columns from `column` to `end`.
template <int kRows, template <int> typename Values>
[[gnu::noinline]] void SumRows(const ValueSums& job, const InterleavedChunk& chunk, Range tokens,
                               int column, int end) {
  constexpr int kMaxVectors = Values<1>::kMaxVectors;
  constexpr int kVectors = TileVectors(kRows) < kMaxVectors ? TileVectors(kRows) : kMaxVectors;
  for (; column + kVectors * kLanes <= end; column += kVectors * kLanes) {
    SumVectors<kRows, kVectors, Values>(job, {chunk, column}, tokens);
  }
  for (; column < end; column += kLanes) {
    SumVectors<kRows, 1, Values>(job, {chunk, column}, tokens);
  }
}

template <int kN>
struct Constant {
  static constexpr int value = kN;
};
// body(Constant<n>) for an n in [1, kMax] known at run time.
template <int kMax, typename Body>
BH_INLINE void WithConstant(int n, const Body& body) {
  if constexpr (kMax > 1) {
    if (n < kMax) return WithConstant<kMax - 1>(n, body);
  }
  body(Constant<kMax>{});
}

struct StoreWeights {
  BH_INLINE void operator()(float* line, int group, F32x16 a, F32x16 b) const {
    StorePairs(line + group * kGroupPairs * kWordsPerPair, a, b);
  }
};

class PairRun : Bf16Unit {
 public:
  PairRun(const AttentionCall& call, const AttentionUnit& unit, float* scratch)
      : PairRun(call, unit, scratch,
                AttentionTileLayoutOf(unit.num_tokens * unit.num_heads, call.head_dim,
                                      call.value_dim)) {}

  void Run() {
    rows_.SetVisible();
    for (int first = 0; first < rows_.count; first += tile_rows_)
      PackQueries(first, TileRows(first));
    for (int chunk = rows_.unit.chunk_begin; chunk < rows_.unit.chunk_end; ++chunk) {
      const Range seen =
          Common(rows_.visible_to_any, {chunk * kAttentionChunk, (chunk + 1) * kAttentionChunk});
      if (seen.empty()) continue;
      chunk_.Locate(chunk, rows_.visible_to_any);
      for (int first = 0; first < rows_.count; first += tile_rows_) {
        in_place_ ? AddChunkInPlace() : AddChunk(first, TileRows(first));
      }
    }
    if (rows_.unit.first_slot < 0) rows_.WriteOutputs();
  }

 private:
  PairRun(const AttentionCall& call, const AttentionUnit& unit, float* scratch,
          const AttentionTileLayout& at)
      : Bf16Unit(call, unit, IsInPlace(call, unit) ? kMaxHeadsInPlace : kTileRows, true, scratch,
                 at),
        in_place_(IsInPlace(call, unit)),
        pairs_((call.head_dim + 1) / 2),
        q_(scratch + at.q) {}

  // Heads of one token, which see the same positions.
  static bool IsInPlace(const AttentionCall& call, const AttentionUnit& unit) {
    return unit.num_tokens == 1 && unit.num_heads <= kMaxHeadsInPlace && !call.latent &&
           call.head_dim % kLanes == 0;
  }

  int TileRows(int first) const { return Min(tile_rows_, rows_.count - first); }
  float* QueriesOf(int first) const { return q_ + int64_t{first} * pairs_ * kWordsPerPair; }

  // Packs a tile of rows as [pairs][words][rows].
  void PackQueries(int first, int rows) {
    float* const packed = QueriesOf(first);
    const int words = pairs_ * kWordsPerPair;
    for (int row = 0; row < rows; ++row) {
      const float* const q = rows_.QueryOf(first + row);
      PrefetchNumbers(rows_.QueryOf(Min(first + row + 4, rows_.count - 1)), call_.head_dim);
      for (int i = 0; i < call_.head_dim; i += kGroupTokens) {
        const int left = call_.head_dim - i;
        alignas(64) float rounded[2 * kLanes];
        StorePairs(rounded, LoadN(q + i, Min(kLanes, left)),
                   LoadN(q + i + kLanes, Max(0, Min(kLanes, left - kLanes))));
        const int word = i / 2 * kWordsPerPair;
        const int end = Min(words, word + kLanes * kWordsPerPair);
        for (int w = word; w < end; ++w) packed[w * rows + row] = rounded[w - word];
      }
    }
  }

  // Adds the current chunk to a tile of rows.
  void AddChunk(int first, int rows) {
    const Range seen = rows_.SeenByAny(first, rows, chunk_.positions());
    if (seen.empty()) return;
    const Range tokens = chunk_.FromBegin(seen);
    const Range groups = GroupsOf(tokens);
    for (int group = groups.begin; group < groups.end; ++group) chunk_.NeedKeys(group);
    const Range vectors = {tokens.begin / kLanes, (tokens.end + kLanes - 1) / kLanes};
    WithConstant<kTileRows>(rows, [&](auto count) {
      ScoreRows<count.value, InterleavedKeys>(QueriesOf(first), pairs_, chunk_, vectors, scores_);
    });
    float m[kMaxRows];
    float l[kMaxRows];
    WeighAll(first, rows, groups, m, l);
    for (int tiles = 0; 2 * tiles < chunk_.value_tiles(); ++tiles) {
      chunk_.NeedValues(tiles, groups);
      SumColumns(first, rows, 2 * tiles * kLanes, Min(2 * (tiles + 1) * kLanes, rows_.width));
    }
    KeepChunk(first, rows, m, l);
  }

  void AddChunkInPlace() {
    const Range seen = SeenBy(0);
    const Range vectors = {seen.begin / kLanes, (seen.end + kLanes - 1) / kLanes};
    float m[kMaxRows];
    float l[kMaxRows];
    WithConstant<kMaxHeadsInPlace>(rows_.count, [&](auto count) {
      ScoreRows<count.value, KeysInPlace>(q_, pairs_, chunk_, vectors, scores_);
    });
    WeighAll(0, rows_.count, GroupsOf(seen), m, l);
    WithConstant<kMaxHeadsInPlace>(rows_.count, [&](auto count) {
      SumRows<count.value, ValuesInPlace>(SumsOf(0), chunk_, seen, 0, rows_.width);
    });
    KeepChunk(0, rows_.count, m, l);
  }

  void WeighAll(int first, int rows, Range groups, float* m, float* l) {
    Weigh(first, rows, groups, m, l, StoreWeights{});
    for (int i = 0; i < rows * rows_.width; i += kLanes) Store(chunk_o_ + i, Zero());
  }

  ValueSums SumsOf(int row) const { return {ScoresOf(row), OutOf(row), rows_.width}; }

  // The tile passes together over pairs that all rows see, each row separately over the others.
  void SumColumns(int first, int rows, int column, int end) {
    Range shared = SeenBy(first);
    for (int r = 1; r < rows; ++r) shared = Common(shared, SeenBy(first + r));
    shared = {(shared.begin + 1) / 2 * 2, shared.end / 2 * 2};
    if (shared.empty()) shared = {kAttentionChunk, kAttentionChunk};
    for (int r = 0; r < rows; ++r) {
      const Range before = Common(SeenBy(first + r), {0, shared.begin});
      if (!before.empty()) SumRows<1, InterleavedValues>(SumsOf(r), chunk_, before, column, end);
    }
    if (shared.begin < shared.end) {
      WithConstant<kTileRows>(rows, [&](auto count) {
        SumRows<count.value, InterleavedValues>(SumsOf(0), chunk_, shared, column, end);
      });
    }
    for (int r = 0; r < rows; ++r) {
      const Range after = Common(SeenBy(first + r), {shared.end, kAttentionChunk});
      if (!after.empty()) SumRows<1, InterleavedValues>(SumsOf(r), chunk_, after, column, end);
    }
  }

  const bool in_place_;
  const int pairs_;  // of d
  float* const q_;   // per row tile [pairs][words][rows]
};

}  // namespace

void AttendUnitInPairs(const AttentionCall& call, const AttentionUnit& unit, float* scratch) {
  PairRun(call, unit, scratch).Run();
}

}  // namespace bulkhead::BH_ISA
