// Products of quantised weights and quantised inputs. A panel is one stream of codes and scales;
// sums of a cell are exact integers, whatever the order. Compiled per instruction set.
#include "kernels/cpu/int8_products.h"

#include "kernels/cpu/panel_tree.h"
#include "simd.h"

namespace bulkhead::BH_ISA {
namespace {

constexpr int64_t kInt8GroupRows = 96;  // whose inputs stay in L2 while panels pass
constexpr int64_t kPrefetchBytes = 2048;
constexpr float kLeastMagnitude = 1e-30f;
constexpr float kRounding = 12582912.0f;  // x + this - this: to nearest even, for |x| < 2^22

BH_INLINE int Smaller(int a, int b) { return a < b ? a : b; }

// The magnitudes' bits order as they do, and above all those of infinities and NaNs.
BH_INLINE float LargestMagnitude(const float* x, int count) {
  I32x16 most = SetI1(0);
  for (int i = 0; i < count; i += kLanes) {
    const F32x16 part = LoadN(x + i, Smaller(count - i, kLanes));
    most = MaxI(most, And(BitsOf(part), SetI1(0x7FFFFFFF)));
  }
  const int32_t bits = MaxLanes(most);
  float magnitude;
  __builtin_memcpy(&magnitude, &bits, sizeof(magnitude));
  return magnitude;
}

void QuantizeRow(const QuantizedPanels& weight, const float* inputs, int64_t row,
                 const QuantizedInputs& x) {
  int8_t* codes = x.codes + row * x.row_bytes;
  for (int i = 0; i < weight.num_cells; ++i) {
    const PackedCell& cell = weight.cells[i];
    const float* from = inputs + cell.begin;
    const float most = LargestMagnitude(from, cell.count);
    const bool finite = most <= 3.402823466e38f;  // false for a NaN, too
    const float inverse = finite && most >= kLeastMagnitude ? 127.0f / most : 0.0f;
    I32x16 sum = SetI1(0);
    // Sixteen at a time, beyond the cell's end: the next cell, or the row's padding, comes after.
    for (int k = 0; k < cell.count; k += kLanes) {
      const F32x16 scaled = Mul(LoadN(from + k, Smaller(cell.count - k, kLanes)), Set1(inverse));
      const F32x16 rounded = Sub(Add(scaled, Set1(kRounding)), Set1(kRounding));
      const I32x16 code = finite ? ToI32(rounded) : SetI1(0);
      sum = Add(sum, code);
      StoreBytes(reinterpret_cast<uint8_t*>(codes + cell.x_offset + k), code);
    }
    x.scales[row * x.cells + i] =
        finite ? (most >= kLeastMagnitude ? most / 127.0f : 0.0f) : __builtin_nanf("");
    x.sums[row * x.cells + i] = SumLanes(sum);
  }
}

template <bool kIsInt4>
struct Words;

template <>
struct Words<false> {
  I32x16 v[2];
  BH_INLINE static Words Load(const char* p) {
    const int32_t* words = reinterpret_cast<const int32_t*>(p);
    return {{LoadI(words), LoadI(words + kLanes)}};
  }
  BH_INLINE static I32x16 Dot(I32x16 acc, I32x16 codes, I32x16 x) {
    return DotBytes(acc, codes, x);
  }
};

template <>
struct Words<true> {
  I32x16 v[2];
  BH_INLINE static Words Load(const char* p) {
    const I32x16 bits = LoadI(reinterpret_cast<const int32_t*>(p));
    const I32x16 mask = SetI1(0x0F0F0F0F);
    return {{And(bits, mask), And(ShiftRight<4>(bits), mask)}};
  }
  BH_INLINE static I32x16 Dot(I32x16 acc, I32x16 codes, I32x16 x) {
    return DotNibbles(acc, codes, x);
  }
};

BH_INLINE I32x16 Broadcast(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return SetI1(four);
}

// Where a tile fetches ahead, and how far that moves per word.
struct Ahead {
  const char* at;
  int64_t step;
};

template <int kRows>
using Chains = F32x16[kRows][2];

// chains = fma(sum of (q - z) x, weight scale * input scale, chains)
template <bool kIsInt4, int kRows>
BH_INLINE void AddCell(const char* at, const PackedCell& cell, int64_t cell_index,
                       const QuantizedInputs& x, int64_t row, Ahead& ahead, Chains<kRows>& chains) {
  constexpr int kWordBytes = QuantizedWordBytes(kIsInt4);
  I32x16 sums[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = SetI1(0);
  const int8_t* inputs = x.codes + row * x.row_bytes + cell.x_offset;
#pragma GCC unroll 2
  for (int word = 0; word < cell.words; ++word) {
    const Words<kIsInt4> weight = Words<kIsInt4>::Load(at);
    for (int line = 0; line < kWordBytes; line += 64) {
      if constexpr (kRows == 1) {
        Prefetch(ahead.at + line);
      } else {
        PrefetchLater(ahead.at + line);
      }
    }
    ahead.at += ahead.step;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const I32x16 input = Broadcast(inputs + r * x.row_bytes);
      sums[r][0] = Words<kIsInt4>::Dot(sums[r][0], weight.v[0], input);
      sums[r][1] = Words<kIsInt4>::Dot(sums[r][1], weight.v[1], input);
    }
    inputs += 4;
    at += kWordBytes;
  }
  const uint16_t* f16 = reinterpret_cast<const uint16_t*>(at);
  const uint8_t* zeros = reinterpret_cast<const uint8_t*>(at + 64);
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    const F32x16 scale = LoadF16(f16 + v * kLanes);
    const F32x16 zero = kIsInt4 ? ToF32(LoadBytes(zeros + v * kLanes)) : Set1(128.0f);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const int64_t of_row = (row + r) * x.cells + cell_index;
      // Whole numbers below 2^24: exact, and cheaper than integer products.
      const F32x16 input_sum = Set1(static_cast<float>(x.sums[of_row]));
      const F32x16 sum = Fnma(zero, input_sum, ToF32(sums[r][v]));
      chains[r][v] = Fma(sum, Mul(scale, Set1(x.scales[of_row])), chains[r][v]);
    }
  }
}

// Rows [row, row + kRows) of one panel.
template <bool kIsInt4, int kRows>
void RunPanel(const Int8Product& product, int64_t panel, int64_t row, Ahead ahead) {
  const QuantizedPanels& weight = *product.weight;
  const char* codes = weight.panels + panel * weight.panel_bytes;
  const int64_t columns_left = product.outputs - panel * kPanelColumns;
  const int columns = static_cast<int>(columns_left < kPanelColumns ? columns_left : kPanelColumns);
  F32x16 left[kMaxSliceLevels][kRows][2];  // unfinished left subtrees, the smallest first
  int cell = 0;
  for (int slice = 0; slice < product.num_slices; ++slice) {
    const bool empty = product.k_borders[slice] == product.k_borders[slice + 1];
    const F32x16 fresh = Set1(empty ? -0.0f : 0.0f);
    Chains<kRows> chains;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) chains[r][0] = chains[r][1] = fresh;
    for (; cell < weight.num_cells && weight.cells[cell].slice == slice; ++cell) {
      AddCell<kIsInt4, kRows>(codes + weight.cells[cell].offset, weight.cells[cell], cell,
                              product.x, row, ahead, chains);
    }
    const int joins = JoinsAfter(slice);
    const bool last = slice + 1 == product.num_slices;
    float* out = product.out + row * product.out_stride + panel * kPanelColumns;
#pragma GCC unroll 6
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
                                  Ahead ahead);

struct PanelTable {
  RunPanelFunction run[kInt8TileRows];  // by rows - 1
};

template <bool kIsInt4, int kRows>
constexpr void Fill(PanelTable& table) {
  table.run[kRows - 1] = &RunPanel<kIsInt4, kRows>;
  if constexpr (kRows > 1) Fill<kIsInt4, kRows - 1>(table);
}

template <bool kIsInt4>
constexpr PanelTable TableOf() {
  PanelTable table{};
  Fill<kIsInt4, kInt8TileRows>(table);
  return table;
}

constexpr PanelTable kInt8Table = TableOf<false>();
constexpr PanelTable kInt4Table = TableOf<true>();

void Multiply(const Int8Product& product, const ProductPart& part) {
  const PanelTable& table = product.is_int4 ? kInt4Table : kInt8Table;
  const int64_t panel_bytes = product.weight->panel_bytes;
  for (int64_t group = part.row_begin; group < part.row_end; group += kInt8GroupRows) {
    const int64_t group_end =
        group + kInt8GroupRows < part.row_end ? group + kInt8GroupRows : part.row_end;
    const int64_t rows = group_end - group;
    const int64_t tiles = (rows + kInt8TileRows - 1) / kInt8TileRows;
    for (int64_t panel = part.panel_begin; panel < part.panel_end; ++panel) {
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t begin = group + rows * tile / tiles;
        const int64_t end = group + rows * (tile + 1) / tiles;
        // A tile alone reads on; of several, each fetches its share of the next panel.
        const char* codes = product.weight->panels + panel * panel_bytes;
        const Ahead ahead{
            codes + (tiles == 1 ? kPrefetchBytes : panel_bytes + panel_bytes * tile / tiles),
            QuantizedWordBytes(product.is_int4) / tiles};
        table.run[end - begin - 1](product, panel, begin, ahead);
      }
    }
  }
}

}  // namespace

const Int8Kernels kInt8Kernels = {QuantizeRow, Multiply};

}  // namespace bulkhead::BH_ISA
