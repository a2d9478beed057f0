// Products of quantised weights and quantised inputs. A panel is one stream of codes and scales;
// sums of a cell are exact integers, whatever the order. Compiled per instruction set.
#include "kernels/matmul/int8.h"

#include "kernels/matmul/int8_cell.h"
#include "kernels/matmul/op.h"
#include "kernels/matmul/panel_tree.h"
#include "kernels/simd/for_vectors.h"
#include "simd.h"

namespace bulkhead::BH_ISA {
namespace {

static_assert(kInt8TileRows <= kMaxInt8TileRowsOfAnyIsa);
constexpr int64_t kGroupTiles = 96 / kInt8TileRows;  // whose inputs stay in L2 while panels pass
constexpr int kRowsInRegisters = kInt8TileVectors == 2 ? 6 : 2;  // with sums and chains
constexpr int64_t kPrefetchBytes = 8192;
constexpr float kMinMagnitude = 1e-30f;
constexpr float kRounding = 12582912.0f;  // x + this - this: to nearest even, for |x| < 2^22

// Magnitudes have the order of their bits, with infinities and NaNs above all others.
float LargestMagnitude(const float* x, int count) {
  const I32x16 magnitude_bits = SetI1(0x7FFFFFFF);
  I32x16 max = SetI1(0);
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    max = MaxI(max, And(BitsOf(Load(x + i)), magnitude_bits));
  }
  if (i < count) max = MaxI(max, And(BitsOf(LoadN(x + i, count - i)), magnitude_bits));
  const int32_t bits = MaxLanes(max);
  float magnitude;
  __builtin_memcpy(&magnitude, &bits, sizeof(magnitude));
  return magnitude;
}

BH_INLINE I32x16 CodesOf(F32x16 inputs, float inverse) {
  const F32x16 scaled = Mul(inputs, Set1(inverse));
  return ToI32(Sub(Add(scaled, Set1(kRounding)), Set1(kRounding)));
}

// Quantises one row of one cell, into words `step` bytes apart; its scale and the sum of its codes.
void QuantizeInputs(const float* from, const PackedCell& cell, int8_t* words, int64_t step,
                    float& scale, int32_t& code_sum) {
  const float max = LargestMagnitude(from, cell.count);
  const bool finite = max <= 3.402823466e38f;  // also false for a NaN
  const bool zero = !(finite && max >= kMinMagnitude);
  scale = finite ? (zero ? 0.0f : max / 127.0f) : __builtin_nanf("");
  code_sum = 0;
  if (zero) {
    for (int word = 0; word < cell.words; ++word, words += step) __builtin_memset(words, 0, 4);
    return;
  }
  const float inverse = 127.0f / max;
  uint8_t codes[kLanes];
  I32x16 sum = SetI1(0);
  int k = 0;
  for (; k + kLanes <= cell.count; k += kLanes, words += 4 * step) {
    const I32x16 code = CodesOf(Load(from + k), inverse);
    sum = Add(sum, code);
    StoreBytes(codes, code);
    for (int i = 0; i < 4; ++i) __builtin_memcpy(words + i * step, codes + 4 * i, 4);
  }
  if (k < cell.count) {
    const I32x16 code = CodesOf(LoadN(from + k, cell.count - k), inverse);
    sum = Add(sum, code);
    StoreBytes(codes, code);
    for (int i = 0; k + i < cell.count; i += 4, words += step) {
      __builtin_memcpy(words, codes + i, 4);
    }
  }
  code_sum = SumLanes(sum);
}

// 16-bit sums of nibbles cost less per row and more per cell: not worth it for one row.
template <PanelFormat kFormat, int kRows>
inline constexpr bool kShortSums = kFormat != PanelFormat::kInt8&& kNibbleSumsAreShort&& kRows > 1;

// `codes` of four inputs; nibbles give at most 24.
template <PanelFormat kFormat, int kRows>
BH_INLINE I32x16 Dot(I32x16 acc, I32x16 codes, I32x16 x) {
  if (kFormat == PanelFormat::kInt8) return DotBytes(acc, codes, x);
  if (!kNibbleSumsAreShort || kShortSums<kFormat, kRows>) return DotNibbles(acc, codes, x);
  return Add(acc, WidenNibbleSums(DotNibbles(SetI1(0), codes, x)));
}

BH_INLINE I32x16 Broadcast(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return SetI1(four);
}

// A cell's inputs for the rows of a tile.
struct TileInputs {
  const int8_t* codes;  // [words][rows][4]
  const float* scales;  // [rows]
  const int32_t* sums;  // [rows]
};

template <int kRows>
using Chains = F32x16[kRows][2];

template <int kRows, int kVectors>
using DotSums = I32x16[kRows][kVectors];

template <PanelFormat kFormat>
inline constexpr int kTakenOff = kFormat == PanelFormat::kInt8 ? kDotBytesZero : 0;

// sums += dot products of `words` words, for vectors [kFirst, kFirst + kVectors) of a panel.
template <PanelFormat kFormat, int kRows, int kFirst, int kVectors>
BH_INLINE void AddWords(const char* at, int words, const int8_t* inputs, Ahead ahead,
                        DotSums<kRows, kVectors>& sums) {
  constexpr int kWordBytes = QuantizedWordBytes(kFormat);
#pragma GCC unroll 1
  for (int word = 0; word < words; ++word) {
    I32x16 weight[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) weight[v] = LoadCodes<kFormat>(at, kFirst + v);
    for (int line = 0; line < kWordBytes * kVectors / 2; line += 64) {
      if constexpr (kRows == 1) {
        Prefetch(ahead.at + line);
      } else {
        PrefetchLater(ahead.at + line);
      }
    }
    ahead.at += ahead.step;
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const I32x16 input = Broadcast(inputs + 4 * r);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = Dot<kFormat, kRows>(sums[r][v], weight[v], input);
        // Row after row: g++ would begin all of them, which exceeds few registers.
        if constexpr (kVectors == 1) Pin(sums[r][v]);
      }
    }
    inputs += 4 * kRows;
    at += kWordBytes;
  }
}

// The same with 16-bit sums of nibbles: as many words at a time as they hold.
template <PanelFormat kFormat, int kRows, int kFirst, int kVectors>
BH_INLINE void AddWordsShort(const char* at, int words, const int8_t* inputs, Ahead ahead,
                             DotSums<kRows, kVectors>& sums) {
  constexpr int kWords = kFormat == PanelFormat::kInt4 ? 8 : 4;
  constexpr int kLargestCode = kFormat == PanelFormat::kInt4 ? 15 : 24;
  static_assert(kWords * 2 * kLargestCode * 127 < 32768);
  for (int left = words; left > 0; left -= kWords) {
    DotSums<kRows, kVectors> part;
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) part[r][v] = SetI1(0);
    }
    AddWords<kFormat, kRows, kFirst, kVectors>(at, left < kWords ? left : kWords, inputs, ahead,
                                               part);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Add(sums[r][v], WidenNibbleSums(part[r][v]));
    }
    at += kWords * QuantizedWordBytes(kFormat);
    inputs += kWords * 4 * kRows;
    ahead.at += kWords * ahead.step;
  }
}

// chains = fma(sum of (q - z) x, weight scale * input scale, chains), for vectors [kFirst, kFirst +
// kVectors) of a panel.
template <PanelFormat kFormat, int kRows, int kFirst, int kVectors>
BH_INLINE void AddVectors(const char* at, int words, bool bf16_scales, const float* factors,
                          const TileInputs& x, Ahead ahead, Chains<kRows>& chains) {
  DotSums<kRows, kVectors> sums;
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = FreshSum<kFormat>(kTakenOff<kFormat>, x.sums[r]);
  }
  if constexpr (kShortSums<kFormat, kRows>) {
    AddWordsShort<kFormat, kRows, kFirst, kVectors>(at, words, x.codes, ahead, sums);
  } else {
    AddWords<kFormat, kRows, kFirst, kVectors>(at, words, x.codes, ahead, sums);
  }
  at += int64_t{words} * QuantizedWordBytes(kFormat);
  const CellScaling scaling =
      LoadScaling<kFormat>(at, at + ScaleBytes(kFormat), bf16_scales, factors);
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const F32x16 scale = scaling.scale[kFirst + v];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      F32x16& chain = chains[r][kFirst + v];
      const F32x16 sum = FinishSum<kFormat>(sums[r][v], scaling.zero[kFirst + v], x.sums[r]);
      chain = Fma(sum, Mul(scale, Set1(x.scales[r])), chain);
    }
  }
}

// A whole panel: at once if the registers hold it, else its halves one after the other.
template <PanelFormat kFormat, int kRows>
BH_INLINE void AddCell(const char* at, int words, bool bf16_scales, const float* factors,
                       const TileInputs& x, Ahead ahead, Chains<kRows>& chains) {
  if constexpr (kInt8TileVectors == 2 || kRows <= 2) {
    AddVectors<kFormat, kRows, 0, 2>(at, words, bf16_scales, factors, x, ahead, chains);
  } else {
    Ahead half{ahead.at, ahead.step / 2};
    AddVectors<kFormat, kRows, 0, 1>(at, words, bf16_scales, factors, x, half, chains);
    half.at += half.step * words;
    AddVectors<kFormat, kRows, 1, 1>(at, words, bf16_scales, factors, x, half, chains);
  }
}

// If sums fill the registers the chains must stay in memory: g++ does that only across a call.
template <PanelFormat kFormat, int kRows>
[[gnu::noinline]] void AddCellApart(const char* at, int words, bool bf16_scales,
                                    const float* factors, const TileInputs& x, Ahead ahead,
                                    Chains<kRows>& chains) {
  AddCell<kFormat, kRows>(at, words, bf16_scales, factors, x, ahead, chains);
}

// The prefetches of a cell's words: the last cell's reach as far ahead as the first's, although
// scales and zeros are stored between the codes. Those are fetched here.
template <PanelFormat kFormat>
BH_INLINE Ahead AheadOfCell(const Ahead& panel, const PackedCell& cell) {
  constexpr int kWordBytes = QuantizedWordBytes(kFormat);
  const Ahead ahead{panel.at + cell.offset * panel.step / kWordBytes, panel.step};
  const char* const scales = ahead.at + cell.words * ahead.step;
  const int64_t bytes = (ScaleBytes(kFormat) + ZeroBytes(kFormat)) * ahead.step / kWordBytes;
  for (int64_t line = 0; line < bytes; line += 64) PrefetchLater(scales + line);
  return ahead;
}

// Rows of `out` are pages apart: without this each store waits for its page's address and its line.
// Three rows per cell: weights would wait behind more lines than that.
template <int kRows>
BH_INLINE void PrefetchOut(const Int8Product& product, int64_t panel, int64_t row, int cell) {
  constexpr int kRowsOfCell = 3;
  const int begin = cell * kRowsOfCell;
  if (begin >= kRows) return;
  const float* out = product.out + (row + begin) * product.out_stride + panel * kPanelColumns;
  for (int r = begin; r < begin + kRowsOfCell && r < kRows; ++r, out += product.out_stride) {
    PrefetchToWrite(out);
    PrefetchToWrite(out + kLanes);
  }
}

// The rows of one tile of one panel; slices join into the product's `out`, or are stored separately
// in `slice_sums` if that is not null.
template <PanelFormat kFormat, int kRows>
void RunPanel(const Int8Product& product, int64_t panel, int64_t row, Ahead ahead,
              float* slice_sums) {
  const QuantizedPanels& weight = *product.weight;
  const QuantizedInputs& x = product.x;
  const char* codes = weight.panels + panel * weight.panel_bytes;
  const float* const factors = FactorsOf(weight, codes);
  const int64_t columns_left = product.outputs - panel * kPanelColumns;
  const int columns = static_cast<int>(columns_left < kPanelColumns ? columns_left : kPanelColumns);
  F32x16 left[kMaxSliceLevels][kRows][2];  // unfinished left subtrees, the smallest first
  int cell = 0;
  for (int slice = 0; slice < product.num_slices; ++slice) {
    const bool empty = product.k_borders[slice] == product.k_borders[slice + 1];
    const F32x16 fresh = Set1(empty ? -0.0f : 0.0f);
    Chains<kRows> chains;
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) chains[r][0] = chains[r][1] = fresh;
    for (; cell < weight.num_cells && weight.cells[cell].slice == slice; ++cell) {
      if (slice_sums == nullptr) PrefetchOut<kRows>(product, panel, row, cell);
      const PackedCell& packed = weight.cells[cell];
      const int64_t first = row * x.cells + int64_t{cell} * kRows;
      const TileInputs inputs{x.codes + row * x.row_bytes + packed.x_offset * kRows,
                              x.scales + first, x.sums + first};
      const char* at = codes + packed.offset;
      const Ahead of_cell = AheadOfCell<kFormat>(ahead, packed);
      if constexpr (kRows <= kRowsInRegisters) {
        AddCell<kFormat, kRows>(at, packed.words, weight.bf16_scales, factors, inputs, of_cell,
                                chains);
      } else {
        AddCellApart<kFormat, kRows>(at, packed.words, weight.bf16_scales, factors, inputs, of_cell,
                                     chains);
      }
    }
    if (slice_sums != nullptr) {
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r, slice_sums += kPanelColumns) {
        Store(slice_sums, chains[r][0]);
        Store(slice_sums + kLanes, chains[r][1]);
      }
      continue;
    }
    const int joins = JoinsAfter(slice);
    const bool last = slice + 1 == product.num_slices;
    float* out = product.out + row * product.out_stride + panel * kPanelColumns;
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r, out += product.out_stride) {
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        F32x16 sum = chains[r][v];
        for (int join = 0; join < joins; ++join) sum = Add(left[join][r][v], sum);
        if (last) {
          StoreN(out + v * kLanes, sum, LanesFrom(columns, v));
        } else {
          left[joins][r][v] = sum;
        }
      }
    }
  }
}

using RunPanelFunction = void (*)(const Int8Product& product, int64_t panel, int64_t row,
                                  Ahead ahead, float* slice_sums);

struct PanelTable {
  RunPanelFunction run[kInt8TileRows];  // by rows - 1
};

template <PanelFormat kFormat, int kRows>
constexpr void Fill(PanelTable& table) {
  table.run[kRows - 1] = &RunPanel<kFormat, kRows>;
  if constexpr (kRows > 1) Fill<kFormat, kRows - 1>(table);
}

template <PanelFormat kFormat>
constexpr PanelTable TableOf() {
  PanelTable table{};
  Fill<kFormat, kInt8TileRows>(table);
  return table;
}

constexpr PanelTable kInt8Table = TableOf<PanelFormat::kInt8>();
constexpr PanelTable kInt4Table = TableOf<PanelFormat::kInt4>();
constexpr PanelTable kFp4Table = TableOf<PanelFormat::kFp4>();

const PanelTable& TableFor(PanelFormat format) {
  if (format == PanelFormat::kFp4) return kFp4Table;
  return format == PanelFormat::kInt4 ? kInt4Table : kInt8Table;
}

}  // namespace

const int kInt8MaxTileRows = kInt8TileRows;

void QuantizeCell(const QuantizedPanels& weight, const FloatRows& inputs, const InputTile& tile,
                  int cell_index, const QuantizedInputs& x) {
  const PackedCell& cell = weight.cells[cell_index];
  int8_t* words = x.codes + tile.begin * x.row_bytes + cell.x_offset * tile.rows;
  const int64_t row_step = x.by_row ? int64_t{4} * cell.words : 4;
  const int64_t word_step = x.by_row ? 4 : 4 * tile.rows;
  const int64_t first = tile.begin * x.cells + cell_index * tile.rows;
  for (int64_t r = 0; r < tile.rows; ++r) {
    const int64_t row = inputs.rows == nullptr ? tile.begin + r : inputs.rows[tile.begin + r];
    const float* from = inputs.x + row * inputs.stride + cell.begin;
    PrefetchNumbers(from + cell.count, cell.count);  // of the next cell
    QuantizeInputs(from, cell, words + r * row_step, word_step, x.scales[first + r],
                   x.sums[first + r]);
  }
}

void MultiplyInt8Slices(const Int8Product& product, int64_t panel, int64_t tile, float* sums) {
  const InputTile rows = InputTileOf(product.rows, product.tiles, tile);
  const char* codes = product.weight->panels + panel * product.weight->panel_bytes;
  const Ahead ahead{codes + kPrefetchBytes, QuantizedWordBytes(product.format)};
  const PanelTable& table = TableFor(product.format);
  table.run[rows.rows - 1](product, panel, rows.begin, ahead, sums);
}

void MultiplyInt8(const Int8Product& product, const Int8Part& part) {
  const PanelTable& table = TableFor(product.format);
  const int64_t panel_bytes = product.weight->panel_bytes;
  for (int64_t group = part.tile_begin; group < part.tile_end; group += kGroupTiles) {
    const int64_t tiles = part.tile_end - group < kGroupTiles ? part.tile_end - group : kGroupTiles;
    // Divisions take longer than a cell: once per group.
    InputTile tile[kGroupTiles];
    for (int64_t i = 0; i < tiles; ++i) {
      tile[i] = InputTileOf(product.rows, product.tiles, group + i);
    }
    const int64_t step = (QuantizedWordBytes(product.format) + tiles - 1) / tiles;
    const int64_t share = panel_bytes / tiles;
    for (int64_t panel = part.panel_begin; panel < part.panel_end; ++panel) {
      // A single tile reads on; with several, each fetches its share of the next panel.
      const char* ahead = product.weight->panels + panel * panel_bytes +
                          (tiles == 1 ? kPrefetchBytes : panel_bytes);
      for (int64_t i = 0; i < tiles; ++i, ahead += share) {
        table.run[tile[i].rows - 1](product, panel, tile[i].begin, {ahead, step}, nullptr);
      }
    }
  }
}

}  // namespace bulkhead::BH_ISA
